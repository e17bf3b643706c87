package lab

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
)

// invalidPackets is a program that answers with packets which connection tracking
// takes for invalid, as in issue 74839 of Kubernetes.
const invalidPackets = "regression-issue-74839"

// Images that tests of Services ask for besides agnhost and pause. Of busybox they use
// no more than a shell and nc, and of the one with iptables the program conntrack.
const (
	invalidPacketsImage = registry + "/e2e-test-images/" + invalidPackets + ":1.4"
	busyboxImage        = registry + "/e2e-test-images/busybox:1.37.0-1"
	iptablesImage       = registry + "/build-image/distroless-iptables:v0.9.6"
)

// E2E says which of the end-to-end tests of Kubernetes to run, and how.
type E2E struct {
	// Focus are regular expressions: tests whose full name one of them matches are run.
	Focus []string
	// Skip are those of tests that are not run although Focus matches.
	Skip []string
	// Processes is how many tests run at a time.
	Processes int
	// Timeout is how long all may take.
	Timeout time.Duration
	// Reports is a directory that gets a JUnit report.
	Reports string
}

// RunE2E runs end-to-end tests of Kubernetes as the administrator, from the client, whose
// address is not of the nodes' subnet. It needs the part [Conformance] built. Failed tests are an
// error; stdio gets their logs. Of images they find agnhost, pause and those above.
func (l *Lab) RunE2E(ctx context.Context, tests E2E, stdio Stdio) error {
	if err := Built(Conformance); err != nil {
		return err
	}
	for _, archive := range []string{invalidPackets + ".tar", "busybox.tar", "iptables.tar"} {
		if err := l.LoadImage(ctx, l.dir.image(archive)); err != nil {
			return err
		}
	}
	if err := l.nameImages(ctx); err != nil {
		return err
	}
	mirrors := l.dir.state("mirrors.yaml")
	text := fmt.Sprintf("promoterE2eRegistry: %[1]s/e2e-test-images\nbuildImageRegistry: %[1]s/build-image\ngcRegistry: %[1]s\n", registry)
	if err := os.WriteFile(mirrors, []byte(text), 0o644); err != nil {
		return err
	}
	command := []string{
		"env", "KUBE_TEST_REPO_LIST=" + mirrors,
		l.dir.bin(l.options.program("ginkgo")), "run", "--no-color", "--silence-skips",
		"--procs=" + strconv.Itoa(tests.Processes), "--timeout=" + tests.Timeout.String(),
	}
	for _, focus := range tests.Focus {
		command = append(command, "--focus="+focus)
	}
	for _, skip := range tests.Skip {
		command = append(command, "--skip="+skip)
	}
	command = append(command, l.dir.bin(l.options.program("e2e.test")), "--",
		"--provider=skeleton", "--kubeconfig="+l.Kubeconfig(), "--kubectl-path="+l.dir.bin("kubectl"),
		"--num-nodes="+strconv.Itoa(len(l.nodes)), "--report-dir="+tests.Reports)
	return l.Client.Run(ctx, stdio, command...)
}

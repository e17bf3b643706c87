package main

import (
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/testenv/testlog"
)

// runsMain is an environment variable: the test binary becomes the speaker.
const runsMain = "FAIRLEAD_RUNS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runsMain) != "" {
		main()
		return
	}
	netlab.LocksApart(m.Run)
}

// speaker is this program with arguments, as it is built.
func speaker(t *testing.T, output *os.File, args ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command(os.Args[0], args...)
	command.Env = append(os.Environ(), runsMain+"=1", "NODE_NAME=node1", "POD_NAMESPACE=fairlead-system")
	command.Stdout, command.Stderr = output, output
	return command
}

// TestOutputThatNothingReads ends no speaker: when a machine shuts down, what reads it may end first, and there is
// still to be handed over.
func TestOutputThatNothingReads(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = read.Close()
	if err := speaker(t, write, "--help").Run(); err != nil {
		t.Errorf("the speaker writes its usage and ends by: %v", err)
	}
}

// endings are how a program ends: asked to, and with the traces of all goroutines, which are more than a pipe holds.
var endings = map[string]syscall.Signal{"asked to": syscall.SIGTERM, "by a fault": syscall.SIGQUIT}

// endsBy sends a signal to a program, and holds that it ends: soon, as the kubelet waits for it, and a program that
// hangs in its last words is not started again.
func endsBy(t *testing.T, program *exec.Cmd, signal syscall.Signal) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		_ = program.Wait() // it was killed, or says so by its status
		close(ended)
	}()
	if err := program.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	select {
	case <-ended:
		t.Logf("it ended after %s", time.Since(began))
	case <-time.After(5 * time.Second):
		t.Errorf("it does not end after %v while its log is not read", signal)
		_ = program.Process.Kill()
		<-ended
	}
}

// The agent programs the kernel, and ends, while the pipe of its log is full and nothing reads it.
func TestALogThatNobodyReadsStopsNoPass(t *testing.T) {
	server := apiserver.Start(t)
	api, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24", "fd00:10:244:1::/64"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	service, err := api.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, signal := range endings {
		t.Run(name, func(t *testing.T) {
			node := netlab.NewHost(t, "node1")
			program := speaker(t, testlog.Unread(t), "--forwarding-mode=nftables", "--log-level=debug", "--proxy-health-address=", "--proxy-status-address=",
				"--metrics-bind-address=127.0.0.1:0", "--pulse-socket="+filepath.Join(t.TempDir(), "pulse.sock"))
			program.Env = append(program.Env, "KUBECONFIG="+reachedFrom(t, node, server.Config))
			node.Do(func() { err = program.Start() })
			if err != nil {
				t.Fatal(err)
			}
			for _, endpoint := range []string{"10.244.7.7", "10.244.7.8", "10.244.7.9"} {
				leadsTo(t, api, service, endpoint)
				awaitRule(t, node, program, endpoint)
			}
			endsBy(t, program, signal)
		})
	}
}

// leadsTo makes an address the only endpoint of a Service.
func leadsTo(t *testing.T, api kubernetes.Interface, service *corev1.Service, endpoint string) {
	t.Helper()
	ready, port, protocol, slices := true, int32(8080), corev1.ProtocolTCP, api.DiscoveryV1().EndpointSlices(service.Namespace)
	if err := slices.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name}); err != nil {
		t.Fatal(err)
	}
	if _, err := slices.Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "s-", Labels: map[string]string{discoveryv1.LabelServiceName: service.Name}}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Port: &port, Protocol: &protocol, Name: new("")}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{endpoint}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awaitRule waits until an endpoint is in the kernel of the node.
func awaitRule(t *testing.T, node *netlab.Host, program *exec.Cmd, endpoint string) {
	t.Helper()
	var rules []byte
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(50 * time.Millisecond) {
		node.Do(func() { rules, _ = exec.Command("nft", "list", "ruleset").CombinedOutput() })
		if strings.Contains(string(rules), endpoint) {
			return
		}
	}
	_ = program.Process.Kill()
	t.Fatalf("while its log is not read, the agent does not program %s:\n%s", endpoint, rules)
}

// reachedFrom is a kubeconfig by which programs on a host reach the API server of the test.
func reachedFrom(t *testing.T, host *netlab.Host, config *rest.Config) string {
	t.Helper()
	var listener net.Listener
	var err error
	host.Do(func() {
		var listen net.ListenConfig
		listener, err = listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	server, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	address := server.Host
	if server.Scheme == "" {
		address = config.Host
	}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", address)
			if err != nil {
				_ = from.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					_ = errors.Join(from.Close(), to.Close())
				}()
			}
		}
	}()
	here := rest.CopyConfig(config)
	here.Host = "https://" + listener.Addr().String()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := apiserver.WriteKubeconfig(here, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// Pulse ends, too, in every way, while nothing reads its log.
func TestALogThatNobodyReadsLetsPulseEnd(t *testing.T) {
	for name, signal := range endings {
		t.Run(name, func(t *testing.T) {
			node, socket := netlab.NewHost(t, "node1"), filepath.Join(t.TempDir(), "pulse.sock")
			program := speaker(t, testlog.Unread(t), "pulse", "--realtime=false", "--metrics-bind-address=", "--socket="+socket, "--log-level=debug")
			var err error
			node.Do(func() { err = program.Start() })
			if err != nil {
				t.Fatal(err)
			}
			for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
				if _, err := os.Stat(socket); err == nil {
					break
				}
				if time.Since(began) > time.Minute {
					t.Error("pulse does not begin to work")
					break
				}
			}
			endsBy(t, program, signal)
		})
	}
}

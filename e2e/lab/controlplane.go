package lab

import (
	"context"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
)

func (l *Lab) startProgram(ctx context.Context, name string, args ...string) error {
	var env []string
	if l.options.ManyServices {
		env = append(os.Environ(), "GOGC=400")
	}
	command := append([]string{l.dir.bin(l.options.program(name))}, args...)
	return l.ControlPlane.Inside(func() error {
		_, err := l.procs.start(ctx, daemon{name: name, command: l.cgroups.joining(controlPlaneName, true, command...), env: env})
		return err
	})
}

// emulated has the control plane be as of the last version that can create many Services, if it is newer.
func (l *Lab) emulated() []string {
	if l.options.ManyServices && !l.options.Older {
		return []string{"--emulated-version=1.33"}
	}
	return nil
}

func (l *Lab) pkiFile(name string) string { return filepath.Join(l.pkiDir(), name) }

func (l *Lab) pkiDir() string { return l.dir.state("pki") }

// startAPI starts etcd and the API server; [Lab.waitForAPI] waits for them.
func (l *Lab) startAPI(ctx context.Context) error {
	const client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	err := l.startProgram(ctx, "etcd", "--data-dir="+l.dir.state("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+client, "--advertise-client-urls="+client, "--listen-peer-urls="+peer)
	if err != nil {
		return err
	}
	more := l.emulated()
	_, own := l.options.controlPlane()
	if l.options.ManyServices {
		more = append(more, "--feature-gates=MultiCIDRServiceAllocator=false")
	}
	return l.startProgram(ctx, "kube-apiserver", append(
		more,
		"--advertise-address="+ordered(l.options, own.v4, own.v6)[0].Addr().String(), // it has to be of the ClusterIPs' first family
		"--secure-port=6443",
		"--etcd-servers="+client,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--service-cluster-ip-range="+l.options.list(serviceRange4, serviceRange6),
		"--client-ca-file="+l.pkiFile("ca.crt"),
		"--tls-cert-file="+l.pkiFile("apiserver.crt"),
		"--tls-private-key-file="+l.pkiFile("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+l.pkiFile("service-accounts.key"),
		"--service-account-signing-key-file="+l.pkiFile("service-accounts.key"),
		"--kubelet-certificate-authority="+l.pkiFile("ca.crt"),
		"--kubelet-client-certificate="+l.pkiFile("apiserver-kubelet-client.crt"),
		"--kubelet-client-key="+l.pkiFile("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file="+l.pkiFile("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file="+l.pkiFile("front-proxy-client.crt"),
		"--proxy-client-key-file="+l.pkiFile("front-proxy-client.key"),
		"--enable-aggregator-routing=true",
	)...)
}

// waitForAPI waits until the API server says that it is ready.
func (l *Lab) waitForAPI(ctx context.Context) error {
	config, err := l.RESTConfig()
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	server, err := l.procs.find("kube-apiserver")
	if err != nil {
		return err
	}
	return l.procs.untilReady(ctx, server, func() error {
		_, err := Get(ctx, client, l.options.apiServerURL()+"/readyz")
		return err
	})
}

// startControllers starts what needs a ready API server.
func (l *Lab) startControllers(ctx context.Context) error {
	config := l.pkiFile("controller-manager.conf")
	err := l.startProgram(ctx, "kube-controller-manager", append(
		l.emulated(),
		"--kubeconfig="+config, "--authentication-kubeconfig="+config, "--authorization-kubeconfig="+config,
		"--leader-elect=false",
		"--allocate-node-cidrs=false", // the nodes are made with theirs
		"--cluster-cidr="+l.options.list(podRange4, podRange6),
		"--service-cluster-ip-range="+l.options.list(serviceRange4, serviceRange6),
		"--service-account-private-key-file="+l.pkiFile("service-accounts.key"),
		"--root-ca-file="+l.pkiFile("ca.crt"),
		"--use-service-account-credentials=true",
		"--cluster-signing-cert-file="+l.pkiFile("ca.crt"),
		"--cluster-signing-key-file="+l.pkiFile("ca.key"),
	)...)
	if err != nil {
		return err
	}
	config = l.pkiFile("scheduler.conf")
	return l.startProgram(ctx, "kube-scheduler", append(
		l.emulated(),
		"--kubeconfig="+config, "--authentication-kubeconfig="+config, "--authorization-kubeconfig="+config, "--leader-elect=false",
	)...)
}

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

func checkProxyMode(mode string) error {
	if mode != "iptables" && mode != "nftables" {
		return fmt.Errorf("kube-proxy mode %q: want iptables or nftables", mode)
	}
	return nil
}

// StartProxy starts the real kube-proxy on every node that is powered on, and
// on any other once it is, in mode iptables or nftables. Any other mode is an error.
func (l *Lab) StartProxy(ctx context.Context, mode string) error {
	if err := checkProxyMode(mode); err != nil {
		return err
	}
	l.options.Proxy = mode
	errs := []error{l.saveOptions()}
	for _, n := range l.nodes {
		if n.running() {
			errs = append(errs, n.startProxy(ctx))
		}
	}
	return errors.Join(errs...)
}

// StopProxy ends kube-proxy on every node and removes its rules. An error joins those of all nodes.
func (l *Lab) StopProxy(ctx context.Context) error {
	l.options.Proxy = ""
	errs := []error{l.saveOptions()}
	for _, n := range l.nodes {
		if !n.running() {
			continue
		}
		err := l.procs.stop(ctx, syscall.SIGTERM, n.process("kube-proxy"))
		if err == nil {
			_, err = n.Exec(ctx, "kube-proxy", "--cleanup", "--kubeconfig=/etc/kubernetes/kube-proxy.conf")
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// kubeProxyImage is made as kubeadm's, with the programs that it needs.
const kubeProxyImage = registry + "/kube-proxy:" + KubernetesVersion

// InstallProxy installs the real kube-proxy as kubeadm does, as a DaemonSet, in mode iptables
// or nftables, but on no node: docs/replacing-kube-proxy.md tells how it comes and goes. It
// needs the part [Proxy] to be built. Any other mode is an error.
func (l *Lab) InstallProxy(ctx context.Context, mode string) error {
	if err := checkProxyMode(mode); err != nil {
		return err
	}
	if err := l.LoadImage(ctx, l.dir.image("kube-proxy.tar")); err != nil {
		return err
	}
	text, err := render("kube-proxy.yaml", map[string]string{
		"Mode": mode, "Image": kubeProxyImage, "PodRange4": podRange4, "PodRange6": podRange6,
		"API": net.JoinHostPort(l.ControlPlane.IPv4.String(), "6443"),
	})
	if err != nil {
		return err
	}
	return l.Apply(ctx, string(text))
}

// UninstallProxy removes what [Lab.InstallProxy] installed, and the rules that it made. An error
// joins those of kubectl and of all nodes.
func (l *Lab) UninstallProxy(ctx context.Context) error {
	_, err := l.Kubectl(ctx, "-n", "kube-system", "delete", "--ignore-not-found", "--timeout=2m", "--cascade=foreground",
		"daemonset/kube-proxy", "configmap/kube-proxy", "serviceaccount/kube-proxy", "clusterrolebinding/lab:kube-proxy")
	errs := []error{err}
	for _, n := range l.nodes {
		if n.running() {
			_, err := n.Exec(ctx, "kube-proxy", "--cleanup")
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

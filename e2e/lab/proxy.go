package lab

import (
	"context"
	"errors"
	"fmt"
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

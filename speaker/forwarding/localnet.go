package forwarding

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

// RouteLocalnet is the kernel's file of the setting without which it delivers nothing
// between a loopback address and another host, such as a pod.
const RouteLocalnet = "/proc/sys/net/ipv4/conf/all/route_localnet"

// Any number but 0 switches the setting on. Others write 1. So what we switched on can be
// told from what another program did, in another process too, and in "speaker cleanup";
// and a program that needs it after us, as kube-proxy does, takes it over by writing 1.
const (
	localnetOff  = "0"
	localnetOurs = "2"
)

// localnet is a setting of the whole host, by its file.
type localnet string

func (l localnet) read() (string, error) {
	value, err := os.ReadFile(string(l))
	return strings.TrimSpace(string(value)), err
}

func (l localnet) write(value string) error { return os.WriteFile(string(l), []byte(value), 0o600) }

// allow switches the setting on, unless it is. The guard must be there: it has the kernel
// take in what neighbours send to loopback addresses (CVE-2020-8558).
func (l localnet) allow() error {
	value, err := l.read()
	if err == nil && value == localnetOff {
		err = l.write(localnetOurs)
	}
	if err != nil {
		return fmt.Errorf("NodePorts cannot answer on 127.0.0.1 unless net.ipv4.conf.all.route_localnet is 1: "+
			"set it on the node, as in /etc/sysctl.d: %w", err)
	}
	return nil
}

// restore switches the setting off if we switched it on and no other program has asked for
// it since. It must come before the guard goes.
func (l localnet) restore() error {
	value, err := l.read()
	if err == nil && value == localnetOurs {
		err = l.write(localnetOff)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil // this kernel has no IPv4
	}
	if err != nil {
		return fmt.Errorf("net.ipv4.conf.all.route_localnet was set for NodePorts on 127.0.0.1 and cannot be set back: "+
			"set it to 0 on the node: %w", err)
	}
	return nil
}

// routeLocalnet keeps the setting that NodePorts on loopback addresses need on only while they are asked for.
type routeLocalnet struct {
	setting  localnet
	restored bool // it was not asked for since
	failed   error
}

// switchOff switches the setting off unless it is asked for, and returns whether the guard must be there
// in spite: while the setting cannot be switched off.
func (l *routeLocalnet) switchOff(want desired.Forwarding) (guard bool) {
	l.failed = nil
	if len(want.Loopback) > 0 {
		l.restored = false
	} else if !l.restored {
		l.failed = l.setting.restore()
		l.restored = l.failed == nil
		return l.failed != nil
	}
	return want.Guard
}

// switchOn switches the setting on if it is asked for and the guard is there, by the error of the backend. It
// returns a *outcome.SettingError if the setting is not as wanted.
func (l *routeLocalnet) switchOn(want desired.Forwarding, err error) error {
	if len(want.Loopback) > 0 && outcome.Settled(err, addr.IPv4) {
		l.failed = l.setting.allow()
	}
	if l.failed != nil {
		return &outcome.SettingError{Of: "route_localnet", Err: l.failed}
	}
	return nil
}

// Package sysctl gives the kernel's connection table the size and the timeouts that kube-proxy gives
// it.
package sysctl

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"fairlead.dev/fairlead/speaker/outcome"
)

// Dir is where the kernel has its settings of the connection table. Its size is the whole
// machine's and can be set in the machine's own network namespace alone, all else is of
// the network namespace.
const Dir = "/proc/sys/net/netfilter"

// mostByCPUs bounds what is asked for by the number of CPUs, as in kube-proxy.
const mostByCPUs = 1 << 20

// Want is what the connection table is to have. What is zero stays as the kernel has it.
// The names are those of kube-proxy's configuration.
type Want struct {
	// MaxPerCore is how many flows there is to be room for, for each CPU; with zero, Min
	// counts as zero, too.
	MaxPerCore int
	// Min is how many at least, on a machine of few CPUs.
	Min int
	// TCPEstablished, TCPCloseWait, UDP and UDPStream are for how long a flow that is
	// silent is remembered, in whole seconds: a connection, one that one side has
	// closed, a flow that was not answered, and one that goes both ways.
	TCPEstablished, TCPCloseWait, UDP, UDPStream time.Duration
	// TCPBeLiberal has segments translated that are outside of the window.
	TCPBeLiberal bool
}

// Max is how many flows there is to be room for on a machine of so many CPUs; zero: as it is.
func (w Want) Max(cpus int) int {
	switch scaled := w.MaxPerCore * cpus; {
	case w.MaxPerCore <= 0:
		return 0
	case scaled > mostByCPUs:
		return mostByCPUs
	default:
		return max(scaled, w.Min)
	}
}

// Table is the connection table of this machine.
type Table struct {
	dir  string
	want Want
	cpus func() (int, error)
	log  *slog.Logger
}

// New returns the table whose settings are below dir; "": Dir. Nothing is written yet.
func New(dir string, want Want, log *slog.Logger) *Table {
	if dir == "" {
		dir = Dir
	}
	return &Table{dir: dir, want: want, cpus: online, log: log}
}

// Apply writes what is not as wanted. The size is raised and never lowered: an
// administrator may have given it more. The rest is set to what is wanted exactly. What cannot be
// set is a *outcome.SettingError each, joined, and holds up nothing else.
func (t *Table) Apply() error {
	errs := []error{t.size()}
	liberal := 0
	if t.want.TCPBeLiberal {
		liberal = 1
	}
	for _, s := range []struct {
		name, value string
		wanted      int
	}{
		{"nf_conntrack_tcp_timeout_established", "tcpEstablishedTimeout", seconds(t.want.TCPEstablished)},
		{"nf_conntrack_tcp_timeout_close_wait", "tcpCloseWaitTimeout", seconds(t.want.TCPCloseWait)},
		{"nf_conntrack_udp_timeout", "udpTimeout", seconds(t.want.UDP)},
		{"nf_conntrack_udp_timeout_stream", "udpStreamTimeout", seconds(t.want.UDPStream)},
		{"nf_conntrack_tcp_be_liberal", "tcpBeLiberal", liberal},
	} {
		if s.wanted > 0 {
			errs = append(errs, t.set(s.name, s.value, s.wanted, func(have int) bool { return have == s.wanted }))
		}
	}
	return errors.Join(errs...)
}

// Fill tells how many flows the connection table of this machine has, and how many it has room
// for. The kernel's figures are below dir, see Dir. It returns an
// error while the kernel tracks no connections at all.
func Fill(dir string) (flows, room int, err error) {
	if flows, err = number(filepath.Join(dir, "nf_conntrack_count")); err != nil {
		return 0, 0, err
	}
	room, err = number(filepath.Join(dir, "nf_conntrack_max"))
	return flows, room, err
}

// online counts the CPUs of the machine, each of which has a line. Those that this process may use are fewer
// where the kubelet gives CPUs to containers of their own.
func online() (int, error) {
	text, err := os.ReadFile("/proc/stat")
	return bytes.Count(text, []byte("\ncpu")), err
}

func number(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// size makes room, with a hash that is wide enough for it: four flows to a bucket.
func (t *Table) size() error {
	const value = "maxPerCore"
	if t.want.MaxPerCore <= 0 {
		return nil
	}
	cpus, err := t.cpus()
	if err != nil {
		return &outcome.SettingError{Of: value, Err: fmt.Errorf("net.netfilter.nf_conntrack_max is not looked at: how many CPUs there are is unknown: %w", err)}
	}
	room := t.want.Max(cpus)
	if err := t.set("nf_conntrack_max", value, room, func(have int) bool { return have >= room }); err != nil {
		return err
	}
	return t.set("nf_conntrack_buckets", value, room/4, func(have int) bool { return have >= room/4 })
}

// set writes a setting unless it is well. The value is the one that asks for it.
func (t *Table) set(name, value string, wanted int, well func(have int) bool) error {
	file := filepath.Join(t.dir, name)
	have, err := number(file)
	if err != nil {
		return unset(name, value, fmt.Sprintf("cannot be read and should be %d", wanted), err)
	}
	if well(have) {
		return nil
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(wanted)), 0o600); err != nil {
		return unset(name, value, fmt.Sprintf("is %d and should be %d", have, wanted), err)
	}
	t.log.Info("a setting of the kernel's connection table is changed", "setting", "net.netfilter."+name, "from", have, "to", wanted)
	return nil
}

func unset(name, value, is string, err error) error {
	return &outcome.SettingError{Of: name, Err: fmt.Errorf("net.netfilter.%s %s: set it on the node, as in /etc/sysctl.d, "+
		"and the Helm value forwarding.conntrack.%s to 0, 0s or false: %w", name, is, value, err)}
}

func seconds(d time.Duration) int { return int(d / time.Second) }

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
)

// debianPath is where a node and an image look for programs.
const debianPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Machine is one machine on the LAN: a network namespace, for a node more.
type Machine struct {
	Name string
	IPv4 netip.Addr // invalid if it has none
	IPv6 netip.Addr
	MAC  net.HardwareAddr // of the link to the LAN

	// inside turns a command into one that enters the machine's other
	// namespaces; nil where a machine has none.
	inside func(command []string) ([]string, error)
}

func newMachine(name string, addrs addresses, families []addr.Family) *Machine {
	m := &Machine{Name: name, IPv6: addrs.v6.Addr(), MAC: addrs.mac()}
	if slices.Contains(families, addr.IPv4) {
		m.IPv4 = addrs.v4.Addr()
	}
	return m
}

// Like gives the machine's address of the same family as the other one.
func (m *Machine) Like(other netip.Addr) netip.Addr {
	if other.Is6() {
		return m.IPv6
	}
	return m.IPv4
}

// Main gives the machine's address of IPv4 if it has one, else that of IPv6.
func (m *Machine) Main() netip.Addr {
	if m.IPv4.IsValid() {
		return m.IPv4
	}
	return m.IPv6
}

// Stdio are the standard streams of a command; nil ones are empty.
type Stdio struct {
	In       io.Reader
	Out, Err io.Writer
}

// Exec runs a command on the machine and gives its standard output. The error
// of a command that fails has its standard error.
func (m *Machine) Exec(ctx context.Context, command ...string) (string, error) {
	var out bytes.Buffer
	err := m.Run(ctx, Stdio{Out: &out}, command...)
	return out.String(), err
}

// Run runs a command on the machine with the given streams. At the context's
// end the command and its children are killed. An error has its standard error, if that goes
// nowhere else.
func (m *Machine) Run(ctx context.Context, stdio Stdio, command ...string) error {
	cmd, err := m.command(ctx, command)
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio.In, stdio.Out, &stderr
	if stdio.Err != nil {
		cmd.Stderr = stdio.Err
	}
	if terminal, ok := stdio.In.(*os.File); ok && isTerminal(terminal) {
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, int(terminal.Fd())
	}
	err = namespaceOf(m.Name).do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err == nil {
		return nil
	}
	if text := strings.TrimSpace(stderr.String()); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return fmt.Errorf("%s on %s: %w", strings.Join(command, " "), m.Name, err)
}

// command prepares a command to be started in the machine's network namespace.
func (m *Machine) command(ctx context.Context, command []string) (*exec.Cmd, error) {
	if m.inside != nil {
		entering, err := m.inside(command)
		if err != nil {
			return nil, err
		}
		command = entering
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = m.environment()
	// nsenter has a child that a signal to nsenter alone would not reach.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second // what it said may take a moment where the machine is overloaded
	return cmd, nil
}

// environment is what commands on the machine find: this process's own, but on
// a node that of a fresh login.
func (m *Machine) environment() []string {
	if m.inside == nil {
		return os.Environ()
	}
	return []string{"PATH=" + debianPath, "HOME=/root", "TERM=" + os.Getenv("TERM")}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Dial connects to an IP address and port from the machine; network and
// address are as in [net.Dial]. A name in place of an address is an error.
func (m *Machine) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("dial from %s: %w: names are not resolved", m.Name, err)
	}
	var conn net.Conn
	err := m.Inside(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("from %s: %w", m.Name, err)
	}
	return conn, nil
}

// Inside runs f on a thread that is in the machine's network namespace, to which the sockets that f opens belong from
// then on. An error is that of f, or says that there is no such namespace.
func (m *Machine) Inside(f func() error) error { return namespaceOf(m.Name).do(f) }

// Get fetches a URL from the machine and gives the body; any status but 200 is
// an error.
func (m *Machine) Get(ctx context.Context, url string) (body string, err error) {
	client := &http.Client{Transport: &http.Transport{DialContext: m.Dial, DisableKeepAlives: true}}
	if body, err = Get(ctx, client, url); err != nil {
		err = fmt.Errorf("from %s: %w", m.Name, err)
	}
	return body, err
}

// Get fetches a URL and returns the body; any status but 200 is an error.
func Get(ctx context.Context, from *http.Client, url string) (body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := from.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	return Body(response)
}

// Body reads the body of a response; any status but 200 is an error.
func Body(response *http.Response) (string, error) {
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", response.Request.URL, response.Status, text)
	}
	return string(text), err
}

// Unplug pulls the machine's cable out of the switch: it loses the carrier,
// and its peers learn nothing. No error if it is out.
func (m *Machine) Unplug() error { return setPort(m.Name, false) }

// Plug puts the cable back. It is an error if the machine has no port.
func (m *Machine) Plug() error { return setPort(m.Name, true) }

// AddLink gives the machine another network card with a cable to the switch, without an IP
// address. It goes with the machine, or when the link is deleted there. It is an error if there
// is one of that name.
func (m *Machine) AddLink(name string) error {
	return addPort(m.Name+"-"+name, namespaceOf(m.Name), name, nil)
}

package flags

import (
	"flag"
	"fmt"
	"time"

	"fairlead.dev/fairlead/speaker/forwarding/conntrack/sysctl"
)

// connections is what the flags say of the connection table, by kube-proxy's names. The
// defaults leave it as it is: the chart has kube-proxy's.
type connections struct{ sysctl.Want }

func (c *connections) register(flags *flag.FlagSet) {
	flags.IntVar(&c.MaxPerCore, "conntrack-max-per-core", 0, "room for how many flows the kernel's connection table is to have for each CPU, up to 1048576 in all; it is raised and never lowered; 0: as it is, whatever --conntrack-min says")
	flags.IntVar(&c.Min, "conntrack-min", 0, "room for how many flows at least")
	flags.DurationVar(&c.TCPEstablished, "conntrack-tcp-timeout-established", 0, "for how long a TCP connection that is silent is remembered; 0: as it is")
	flags.DurationVar(&c.TCPCloseWait, "conntrack-tcp-timeout-close-wait", 0, "for how long a TCP connection that one side has closed is remembered; 0: as it is")
	flags.BoolVar(&c.TCPBeLiberal, "conntrack-tcp-be-liberal", false, "translate TCP segments that are outside of the window, too; false: as it is")
	flags.DurationVar(&c.UDP, "conntrack-udp-timeout", 0, "for how long a UDP flow that was not answered is remembered; 0: as it is")
	flags.DurationVar(&c.UDPStream, "conntrack-udp-timeout-stream", 0, "for how long a UDP flow that goes both ways is remembered; 0: as it is")
}

// parse reads the flags. The kernel counts in whole seconds.
func (c *connections) parse() (sysctl.Want, error) {
	for name, value := range map[string]int{"--conntrack-max-per-core": c.MaxPerCore, "--conntrack-min": c.Min} {
		if value < 0 {
			return sysctl.Want{}, fmt.Errorf("%s=%d: must be 0 or more", name, value)
		}
	}
	for name, value := range map[string]time.Duration{
		"--conntrack-tcp-timeout-established": c.TCPEstablished, "--conntrack-tcp-timeout-close-wait": c.TCPCloseWait,
		"--conntrack-udp-timeout": c.UDP, "--conntrack-udp-timeout-stream": c.UDPStream,
	} {
		if value < 0 || value%time.Second != 0 {
			return sysctl.Want{}, fmt.Errorf("%s=%v: must be 0 or whole seconds", name, value)
		}
	}
	return c.Want, nil
}

package stage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"fairlead.dev/fairlead/e2e/bench/objects"
)

// Contestant is one way to forward Services.
type Contestant struct {
	Name    string
	Ours    bool
	Mode    string // iptables or nftables; "": no NAT at all
	Variant string // of iptables, nft or legacy; "" if not used
	Before  bool   // an earlier build of ours, see Programs
}

// NoNAT only routes: flows go to an endpoint itself.
const NoNAT = "no-nat"

// Contestants returns all that can be measured, earlier builds of ours last.
func Contestants() []Contestant {
	all := []Contestant{
		{Name: NoNAT},
		{Name: "fairlead-iptables", Ours: true, Mode: "iptables", Variant: "nft"},
		{Name: "fairlead-nftables", Ours: true, Mode: "nftables"},
		{Name: "kube-proxy-iptables", Mode: "iptables", Variant: "nft"},
		{Name: "kube-proxy-nftables", Mode: "nftables"},
		{Name: "fairlead-iptables-legacy", Ours: true, Mode: "iptables", Variant: "legacy"},
		{Name: "kube-proxy-iptables-legacy", Mode: "iptables", Variant: "legacy"},
	}
	for _, c := range all {
		if c.Ours {
			c.Name, c.Before = "before-"+strings.TrimPrefix(c.Name, "fairlead-"), true
			all = append(all, c)
		}
	}
	return all
}

// Choose returns the contestants of these names, separated by commas; with none all but legacy
// iptables, which hosts use less and less. Earlier builds of ours are among them only if there is one. An
// error lists the names that there are.
func Choose(names string, before bool) ([]Contestant, error) {
	all := slices.DeleteFunc(Contestants(), func(c Contestant) bool { return c.Before && !before })
	if names == "" {
		return slices.DeleteFunc(all, func(c Contestant) bool { return c.Variant == "legacy" }), nil
	}
	var chosen []Contestant
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(c Contestant) bool { return c.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no mode %q, those of an earlier build need -before: choose of %v", name, all)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// String is the name.
func (c Contestant) String() string { return c.Name }

// Rival is the other product in the same mode, "" for none.
func (c Contestant) Rival() string {
	for _, other := range Contestants() {
		if c.Mode != "" && other.Ours != c.Ours && other.Mode == c.Mode && other.Variant == c.Variant {
			return other.Name
		}
	}
	return ""
}

// Programs are where the programs and what they need are.
type Programs struct {
	Speaker, KubeProxy string
	Before             string // an earlier build of the speaker; "" for none
	Kubeconfig         string
	Dir                string // for their files
}

// command is how a contestant is started. The variant of iptables is told as on a real
// node: to kube-proxy by what iptables in PATH is, to us by the kubelet's hint.
func (c Contestant) command(ctx context.Context, p Programs) *exec.Cmd {
	env := append(os.Environ(), "KUBECONFIG="+p.Kubeconfig)
	var cmd *exec.Cmd
	if c.Ours {
		speaker := p.Speaker
		if c.Before {
			speaker = p.Before
		}
		cmd = exec.CommandContext(ctx, speaker, "--forwarding-mode="+c.Mode, "--pulse-socket="+filepath.Join(p.Dir, "pulse.sock"))
		env = append(env, "NODE_NAME="+objects.NodeName, "POD_NAMESPACE=fairlead-system", "DAEMONSET_NAME=fairlead-speaker")
	} else {
		cmd = exec.CommandContext(ctx, p.KubeProxy, "--proxy-mode="+c.Mode, "--hostname-override="+objects.NodeName,
			"--kubeconfig="+p.Kubeconfig, "--cluster-cidr="+objects.PodRange,
			// By default it waits up to a second before it acts on a change.
			"--iptables-min-sync-period=1ms",
			// The connection tracking limits are the whole machine's: leave them.
			"--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0",
			"--conntrack-tcp-timeout-close-wait=0")
	}
	if c.Variant != "" {
		env = append(env, "PATH="+p.variantDir(c.Variant)+":"+os.Getenv("PATH"))
	}
	cmd.Env = env
	return cmd
}

// synced are the texts of the log lines after which the Services and their endpoints
// have been read.
func (c Contestant) synced() []string {
	if c.Ours {
		return []string{"Services, EndpointSlices and Nodes are read"}
	}
	return []string{
		`"Caches are synced" controller="service config"`,
		`"Caches are synced" controller="endpoint slice config"`,
	}
}

func (p Programs) variantDir(variant string) string { return filepath.Join(p.Dir, variant) }

// Prepare makes directories in which iptables is one variant. An error says that a variant is not
// installed.
func (p Programs) Prepare() error {
	for _, variant := range []string{"nft", "legacy"} {
		program, err := exec.LookPath("xtables-" + variant + "-multi")
		if err != nil {
			return fmt.Errorf("%w: install iptables 1.8 or newer", err)
		}
		if err := os.Mkdir(p.variantDir(variant), 0o755); err != nil {
			return err
		}
		for _, name := range []string{"iptables", "ip6tables"} {
			for _, action := range []string{"", "-save", "-restore"} {
				if err := os.Symlink(program, filepath.Join(p.variantDir(variant), name+action)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

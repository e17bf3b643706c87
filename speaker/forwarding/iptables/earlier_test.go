package iptables

import (
	"fmt"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// TestEarlierVersionIsReplaced begins with chains, jumps and sets of ours as another
// version may have laid them out: they go with the first write, and what is others'
// stays.
func TestEarlierVersionIsReplaced(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *cluster) {
		want := blackbox.Forwarding(blackbox.Services()...)
		others := func() {
			for _, f := range addr.Families() {
				program := strings.TrimSuffix(commands{c.variant, f}.program(""), "-")
				c.Run(program, "-A", "INPUT", "-m", "comment", "--comment", "-j FAIRLEAD-LOCAL is not here", "-j", "ACCEPT")
				c.Run(program, "-t", "nat", "-N", "OTHERS")
			}
			c.Run("ipset", "create", "OTHERS-FAIRLEAD-", "hash:ip")
		}
		others()
		c.Apply(want)
		fresh := c.rules()
		c.Cleanup()

		for _, f := range addr.Families() {
			family := strings.ToLower(strings.Replace(f.String(), "IPv", "inet", 1))
			family = map[string]string{"inet4": "inet", "inet6": "inet6"}[family]
			for _, set := range []string{
				"FAIRLEAD-HAIRPIN%d hash:ip,port,ip family %s", "FAIRLEAD-C%d-OLD hash:ip timeout 60 family %s",
				"FAIRLEAD-NETS%d hash:net,iface family %s",
			} {
				c.Run(append([]string{"ipset", "create"}, strings.Fields(fmt.Sprintf(set, f, family))...)...)
			}
			// One that is wanted, of the same kind, but smaller and with strange contents.
			c.Run("ipset", "create", fmt.Sprintf("FAIRLEAD-ENDPOINTS%d", f), "hash:ip,port,ip", "family", family, "maxelem", "3")
			c.Run("ipset", "add", fmt.Sprintf("FAIRLEAD-ENDPOINTS%d", f), map[addr.Family]string{
				addr.IPv4: "10.9.9.9,tcp:9,10.9.9.8", addr.IPv6: "fd09::9,tcp:9,fd09::8",
			}[f])
			restore := commands{c.variant, f}.program("restore")
			c.Run("sh", "-c", fmt.Sprintf(`cat <<'END' | %s --noflush
*nat
:FAIRLEAD-DISPATCH - [0:0]
:FAIRLEAD-HIDE - [0:0]
:FAIRLEAD-FIND - [0:0]
:FAIRLEAD-SHOW - [0:0]
:FAIRLEAD-OLD - [0:0]
:FAIRLEAD-OLDER - [0:0]
-A FAIRLEAD-DISPATCH -j FAIRLEAD-HIDE
-A FAIRLEAD-DISPATCH -j FAIRLEAD-FIND
-A FAIRLEAD-DISPATCH -j FAIRLEAD-SHOW
-A FAIRLEAD-HIDE -j MARK --set-xmark 0x4000/0x4000
-A FAIRLEAD-SHOW -j MARK --set-xmark 0x0/0x4000
-A FAIRLEAD-DISPATCH -m recent --name FAIRLEAD-x --set -j FAIRLEAD-OLD
-A FAIRLEAD-OLD -m set --match-set FAIRLEAD-HAIRPIN%[2]d dst,dst,src -g FAIRLEAD-OLDER
-A FAIRLEAD-OLDER -j SET --add-set FAIRLEAD-C%[2]d-OLD src --exist
-A FAIRLEAD-OLDER -m set --match-set FAIRLEAD-ENDPOINTS%[2]d dst,dst,src -j RETURN
-A PREROUTING -j FAIRLEAD-DISPATCH
-A PREROUTING -j FAIRLEAD-DISPATCH
-A PREROUTING -p tcp -m comment --comment "an \"old\" way in" -g FAIRLEAD-OLD
-A OTHERS -m tcp -p tcp --dport 7 -j FAIRLEAD-OLDER
COMMIT
*filter
:FAIRLEAD-LOCAL - [0:0]
-A FAIRLEAD-LOCAL -m conntrack --ctstate NEW -j DROP
-A INPUT -j FAIRLEAD-LOCAL
-A OUTPUT -j FAIRLEAD-LOCAL
COMMIT
END`, restore, f))
		}
		c.Apply(want)
		for _, f := range addr.Families() {
			if !(&faulty{cluster: c}).serves(f) {
				t.Errorf("%s is not served", f)
			}
		}
		if got := c.rules(); got != fresh {
			t.Errorf("rules after another version:\n%s\nwant\n%s", got, fresh)
		}
	})
}

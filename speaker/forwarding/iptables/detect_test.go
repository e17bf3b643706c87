package iptables

import (
	"testing"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// TestDetect holds that the variant that the host uses is found, whatever hints at it.
func TestDetect(t *testing.T) {
	for _, test := range []struct {
		name     string
		commands [][]string
		want     Variant
	}{
		{"an empty host", nil, NFT},
		{"rules of legacy alone", [][]string{{"iptables-legacy", "-A", "INPUT", "-j", "ACCEPT"}}, Legacy},
		{"rules of IPv6 legacy alone", [][]string{{"ip6tables-legacy", "-A", "INPUT", "-j", "ACCEPT"}}, Legacy},
		{"more rules of nft", [][]string{
			{"iptables-legacy", "-A", "INPUT", "-j", "ACCEPT"},
			{"iptables-nft", "-A", "INPUT", "-j", "ACCEPT"},
			{"iptables-nft", "-A", "OUTPUT", "-j", "ACCEPT"},
		}, NFT},
		{"a kubelet on legacy", [][]string{
			{"iptables-nft", "-A", "INPUT", "-j", "ACCEPT"},
			{"iptables-legacy", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"},
		}, Legacy},
		{"a kubelet on nft", [][]string{
			{"iptables-legacy", "-A", "INPUT", "-j", "ACCEPT"},
			{"ip6tables-nft", "-t", "mangle", "-N", "KUBE-KUBELET-CANARY"},
		}, NFT},
	} {
		t.Run(test.name, func(t *testing.T) {
			node := netlab.NewHost(t, "node")
			for _, command := range test.commands {
				blackbox.RunOn(t, node, command...)
			}
			node.Do(func() {
				if backend := New(Config{Log: blackbox.Quiet()}); backend.variant != test.want {
					t.Errorf("detected %q, want %s", backend.variant, test.want)
				}
			})
		})
	}
}

package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/e2e/product"
)

func name(n string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: n} }

func key(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }

// What one object can tell is refused by the API server, and the message names the
// field.
func TestBadInputIsRefusedByName(t *testing.T) {
	c := cluster(t)
	for field, text := range map[string]string{
		"addresses": `{kind: IPAddressPool, spec: {addresses: [nonsense]}}`,
		"reversed":  `{kind: IPAddressPool, spec: {addresses: [192.0.2.9-192.0.2.1]}}`,
		"peerASN":   `{kind: BGPPeer, spec: {myASN: 64500, peerASN: 4294967296, peerAddress: 192.0.2.1}}`,
		"myASN":     `{kind: BGPPeer, spec: {myASN: 0, peerASN: 64512, peerAddress: 192.0.2.1}}`,
		"holdTime":  `{kind: BGPPeer, spec: {myASN: 64500, peerASN: 64512, peerAddress: 192.0.2.1, holdTime: 1s}}`,
		"unknown":   `{kind: L2Advertisement, spec: {ipAddressPool: x}}`,
	} {
		err := c.Apply(within(t, soon), strings.Replace(text, "{", "{apiVersion: fairlead.dev/v1beta1, metadata: {name: bad}, ", 1))
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v, want to be refused with %q in the message", text, err, field)
		}
	}
}

// What it takes two objects to tell is a condition on the object, and everything else
// goes on, also after a restart of the controller.
func TestBadInputOfTwoObjectsIsACondition(t *testing.T) {
	c := cluster(t)
	create(t, c, &v1beta1.IPAddressPool{ObjectMeta: name("overlapping"), Spec: v1beta1.IPAddressPoolSpec{Addresses: []string{"172.30.200.90-172.30.200.110"}}})
	create(t, c, &v1beta1.BGPPeer{ObjectMeta: name("no-secret"), Spec: v1beta1.BGPPeerSpec{
		MyASN: 64500, PeerASN: 64999, PeerAddress: "192.0.2.1", PasswordSecret: &v1beta1.SecretReference{Name: "missing"},
	}})
	create(t, c, &v1beta1.BGPAdvertisement{ObjectMeta: name("no-pool"), Spec: v1beta1.BGPAdvertisementSpec{IPAddressPools: []string{"missing"}}})
	outside := product.WebService(webs, "outside", "", everyone)
	outside.Annotations = map[string]string{v1beta1.AnnotationAddresses: "198.51.100.1"}
	create(t, c, outside)

	told := func() {
		t.Helper()
		for what, words := range map[string][]string{
			"ipaddresspool/overlapping": {"layer2", "172.30.200.90"},
			"bgppeer/no-secret":         {"missing"},
			"bgpadvertisement/no-pool":  {"missing"},
			"service/outside":           {"198.51.100.1"},
		} {
			eventually(t, soon, func(ctx context.Context) error {
				out, err := c.Kubectl(ctx, "-n", webs, "get", what, "-o", `jsonpath={range .status.conditions[?(@.status=="False")]}{.reason}: {.message}{end}`)
				for _, word := range words {
					if err == nil && !strings.Contains(out, word) {
						err = fmt.Errorf("%s: condition %q does not name %q", what, out, word)
					}
				}
				return err
			})
		}
		fine := product.WebService(webs, "fine", "layer2", everyone)
		vip := expose(t, c, fine)[0]
		reply(t, c.Client, vip)
		remove(t, c, fine)
	}
	told()
	eventually(t, soon, func(ctx context.Context) error { // Events are written behind the conditions
		events, err := c.Kubectl(ctx, "-n", webs, "get", "events", "--field-selector=involvedObject.name=outside,type=Warning")
		if err == nil && !strings.Contains(events, "198.51.100.1") {
			err = fmt.Errorf("no Event tells why:\n%s", events)
		}
		return err
	})
	if _, err := c.Kubectl(within(t, 3*time.Minute), "-n", product.Namespace, "rollout", "restart", "deployment/fairlead-controller", "daemonset/fairlead-speaker"); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitInstalled(within(t, 5*time.Minute)); err != nil {
		t.Fatal(err)
	}
	told()
}

// What cannot be read of endpoints is left out, and all else is served; each node says so in
// its NodeForwarding until it is mended.
func TestEndpointsThatMeanNothingAreACondition(t *testing.T) {
	c := cluster(t)
	fine := product.WebService(webs, "fine", "layer2", everyone)
	vip := expose(t, c, fine)[0]
	// says waits until the NodeForwarding of each node has such a condition. One that has
	// changed often of late is written once in 30 seconds.
	says := func(condition, status string, words ...string) {
		t.Helper()
		eventually(t, patience, func(ctx context.Context) error {
			var all v1beta1.NodeForwardingList
			if err := c.API.List(ctx, &all); err != nil {
				return err
			}
			if len(all.Items) != len(c.Nodes()) {
				return fmt.Errorf("%d NodeForwardings, want one for each of %d nodes", len(all.Items), len(c.Nodes()))
			}
			for _, object := range all.Items {
				found := meta.FindStatusCondition(object.Status.Conditions, condition)
				if found == nil || string(found.Status) != status {
					return fmt.Errorf("%s: %s is not %s: %+v", object.Name, condition, status, object.Status)
				}
				for _, word := range words {
					if !strings.Contains(found.Message, word) {
						return fmt.Errorf("%s: %s does not name %q: %s", object.Name, condition, word, found.Message)
					}
				}
			}
			return nil
		})
	}
	for _, condition := range []string{"Programmed", "SoleProxy", "PodsKnown", "Readable"} {
		says(condition, "True")
	}
	labels := map[string]string{discoveryv1.LabelServiceName: fine.Name}
	bad := []*discoveryv1.EndpointSlice{
		{
			ObjectMeta: metav1.ObjectMeta{Namespace: webs, Name: "names", Labels: labels}, AddressType: discoveryv1.AddressTypeFQDN,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"www.example.org"}}},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Namespace: webs, Name: "ports", Labels: labels}, AddressType: discoveryv1.AddressTypeIPv4,
			Ports:     []discoveryv1.EndpointPort{{Name: new("nonsense"), Port: new(int32(70000))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
		},
	}
	for _, slice := range bad {
		create(t, c, slice)
	}
	says("Readable", "False", "EndpointSlice/webs/names", "FQDN", "EndpointSlice/webs/ports", "70000")
	says("Programmed", "True")
	reply(t, c.Client, vip)
	out, err := c.Kubectl(within(t, soon), "get", "nodeforwardings", "-o", "wide")
	if err != nil || !strings.Contains(out, "WHAT IS WRONG") || !strings.Contains(out, "70000") {
		t.Errorf("kubectl (%v) does not tell:\n%s", err, out)
	}
	for _, slice := range bad {
		remove(t, c, slice)
	}
	says("Readable", "True")
	reply(t, c.Client, vip)
	remove(t, c, fine)
}

// kubectl is the manual: columns and explanations are part of the product.
func TestKubectlExplainsAndLists(t *testing.T) {
	c := cluster(t)
	for _, test := range []struct{ command, want string }{
		{"explain bgppeer.spec.holdTime", "Default: 90s"},
		{"explain ipaddresspool.spec.autoAssign", "Default: true"},
		{"get ipaddresspools", "layer2"},
		{"get bgppeers", "172.30.0.200"},
		{"get fairlead", "bgpadvertisement"},
		{"explain nodeforwarding.status.programmedPorts", "programmedPorts is the number"},
		{"get nodeforwardings", "PROGRAMMED"},
	} {
		out, err := c.Kubectl(within(t, soon), strings.Fields(test.command)...)
		if err != nil || !strings.Contains(out, test.want) {
			t.Errorf("kubectl %s (%v) does not tell %q:\n%s", test.command, err, test.want, out)
		}
	}
}

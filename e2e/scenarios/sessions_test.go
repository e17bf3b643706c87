package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/e2e/product"
)

// Who looks at the cluster alone sees that the router has ended a session, which node had it, and
// why: in Events of the BGPPeer, in its column, and in the BGPSession. The other nodes' routes stay.
func TestASessionThatTheRouterEndsIsTold(t *testing.T) {
	c := cluster(t)
	vip := expose(t, c, product.WebService(webs, "ended", "bgp", local))[0]
	eventually(t, soon, func(context.Context) error { return nextHops(c, vip, len(c.Nodes())) })
	node := c.Node(2)
	session := client.ObjectKey{Name: v1beta1.SessionName(node.Name, "router")}
	var before v1beta1.BGPSession
	if err := c.API.Get(within(t, soon), session, &before); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Router.VTYSH(within(t, soon), "clear bgp "+node.IPv4.String()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"SessionDown node " + node.Name + ": " + c.Router.IPv4.String() + " ended the session: cease (administrative reset)",
		"SessionUp node " + node.Name + ": the session is established",
	} {
		eventually(t, soon, func(ctx context.Context) error {
			events, err := c.Kubectl(ctx, "get", "events", "--field-selector=involvedObject.kind=BGPPeer,involvedObject.name=router",
				"-o", `jsonpath={range .items[*]}{.reason} {.message}{"\n"}{end}`)
			if err == nil && !strings.Contains(events, want+"\n") {
				err = fmt.Errorf("no Event %q among\n%s", want, events)
			}
			return err
		})
	}
	eventually(t, patience, func(ctx context.Context) error { // what has changed often of late is written once in 30 seconds
		var now v1beta1.BGPSession
		err := c.API.Get(ctx, session, &now)
		if err == nil && (now.Status.State != "Established" || !before.Status.Since.Before(&now.Status.Since) || !strings.Contains(now.Status.LastError, "administrative reset")) {
			err = fmt.Errorf("the BGPSession of %s was %+v, and is %+v", node.Name, before.Status, now.Status)
		}
		return err
	})
	eventually(t, patience, func(ctx context.Context) error {
		peers, err := c.Kubectl(ctx, "get", "bgppeer", "router")
		if err == nil && !strings.Contains(peers, "3/3") {
			err = fmt.Errorf("the column Established is not 3/3:\n%s", peers)
		}
		return err
	})
	eventually(t, soon, func(context.Context) error { return nextHops(c, vip, len(c.Nodes())) })
}

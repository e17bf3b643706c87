package scenarios

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// TestTheFirstService does what README.md has a newcomer do once the chart is installed: its pool, with addresses of the
// lab's network, its commands as they stand there, and a request.
func TestTheFirstService(t *testing.T) {
	c := cluster(t)
	text, err := os.ReadFile(filepath.Join(c.Root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	const theirs, ours = "192.168.1.240-192.168.1.250", "172.30.200.150-172.30.200.159"
	yaml := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(page)
	commands := regexp.MustCompile("(?m)^    (kubectl (?:create|expose) .*)$").FindAllStringSubmatch(page, -1)
	if yaml == nil || !strings.Contains(yaml[1], theirs) || len(commands) != 2 {
		t.Fatalf("README has no pool of %s, or %d commands that make a Service", theirs, len(commands))
	}
	file := filepath.Join(t.TempDir(), "pool.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(yaml[1], theirs, ours)), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := shell(context.Background(), c, c.Root, "kubectl delete --ignore-not-found service/web deployment/web; kubectl delete -f "+file)
		if err != nil {
			t.Error(err)
		}
	})
	image := regexp.MustCompile(`registry\.k8s\.io/e2e-test-images/agnhost:\S+`)
	script := image.ReplaceAllString(fmt.Sprintf("kubectl apply -f %s\n%s\n%s\n", file, commands[0][1], commands[1][1]), lab.AgnhostImage)
	// The lab has another pool, from which a Service may get an address as well.
	script += "kubectl annotate service web fairlead.dev/pool=lan\n"
	if out, err := shell(within(t, soon), c, c.Root, script); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, soon, func(ctx context.Context) error {
		var s corev1.Service
		if err := c.API.Get(ctx, client.ObjectKey{Namespace: "default", Name: "web"}, &s); err != nil {
			return err
		}
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			if strings.HasPrefix(ingress.IP, "172.30.200.15") {
				_, err := product.Ask(ctx, c.Client, netip.MustParseAddr(ingress.IP), 80)
				return err
			}
		}
		return fmt.Errorf("the Service has the addresses %v", s.Status.LoadBalancer.Ingress)
	})
}

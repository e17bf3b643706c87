package v1beta1_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/fairlead/api/v1beta1"
)

// TestSessionNames holds that no two pairs have one name, and that all are names.
func TestSessionNames(t *testing.T) {
	t.Parallel()
	if got := v1beta1.SessionName("node1", "tor"); got != "tor.node1" {
		t.Errorf("got %q, want tor.node1", got)
	}
	long, longer := strings.Repeat("x", 62)+"-"+strings.Repeat("y", 190), strings.Repeat("x", 62)+"-"+strings.Repeat("z", 190)
	seen := map[string][2]string{}
	names := []string{"a", "b", "a.b", "b.c", "a.b.c", "c", "a-b", long, longer, long[:250] + ".a", strings.Repeat("a.", 126) + "a"}
	for _, node := range names {
		for _, peer := range names {
			name := v1beta1.SessionName(node, peer)
			if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
				t.Errorf("%s of %s and %s: %v", name, node, peer, problems)
			}
			if before, taken := seen[name]; taken {
				t.Errorf("%s is the name of %v and of %v", name, before, [2]string{node, peer})
			}
			seen[name] = [2]string{node, peer}
		}
		if problems := validation.IsValidLabelValue(v1beta1.LabelValue(node)); len(problems) > 0 {
			t.Errorf("the label of %s: %v", node, problems)
		}
	}
	if v1beta1.LabelValue(long) == v1beta1.LabelValue(longer) {
		t.Error("two names have one label")
	}
}

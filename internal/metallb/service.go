package metallb

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/fairlead/api/v1beta1"
)

// serviceUse is what Services of type LoadBalancer ask for, taken together.
type serviceUse struct {
	followed  map[string]int      // annotations that are read here as well, to how often
	noted     int                 // Services with MetalLB's own note
	classes   map[string]int      // load balancer classes, to how often
	unclassed int                 // Services without one
	pools     map[string][]string // pools that are asked for, to the Services that ask
	sharing   map[string][]string // share keys, to the namespaces of their Services
}

// service looks at what a Service asks MetalLB for.
func (t *translator) service(s *subject, u unstructured.Unstructured) {
	use := &t.services
	if use.followed == nil {
		use.followed, use.classes, use.pools, use.sharing = map[string]int{}, map[string]int{}, map[string][]string{}, map[string][]string{}
	}
	if kind, _, _ := unstructured.NestedString(u.Object, "spec", "type"); kind != "LoadBalancer" {
		return
	}
	if class, _, _ := unstructured.NestedString(u.Object, "spec", "loadBalancerClass"); class != "" {
		use.classes[class]++
	} else {
		use.unclassed++
	}
	t.secondFamily(s, u)
	annotations := u.GetAnnotations()
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		for _, prefix := range v1beta1.MetalLBPrefixes() {
			name, ok := strings.CutPrefix(key, prefix)
			if !ok {
				continue
			}
			switch name {
			case v1beta1.MetalLBAddresses:
				use.followed[key]++
			case v1beta1.MetalLBShareKey:
				use.followed[key]++
				if with := use.sharing[annotations[key]]; !slices.Contains(with, u.GetNamespace()) {
					use.sharing[annotations[key]] = append(with, u.GetNamespace())
				}
			case v1beta1.MetalLBPool:
				use.followed[key]++
				use.pools[annotations[key]] = append(use.pools[annotations[key]], s.name)
			case v1beta1.MetalLBAllocatedFrom:
				use.noted++
			default:
				s.lose("metadata.annotations["+key+"]", annotations[key], "an annotation that is not read here: see in MetalLB's documentation what it does, and whether the Service needs it")
			}
		}
	}
}

// tell tells of all Services together, given the pools of ours.
func (use *serviceUse) tell(t *translator, pools map[string]bool) {
	s := &subject{kind: "Service"}
	for _, key := range slices.Sorted(maps.Keys(use.followed)) {
		s.find(Differs, "metadata.annotations["+key+"]", nil, "goes on working on %s, as long as the chart's metallbAnnotations is true, its default; new ones are better written with fairlead.dev/", services(use.followed[key], "", ""))
	}
	for _, key := range slices.Sorted(maps.Keys(use.sharing)) {
		if across := slices.Sorted(slices.Values(use.sharing[key])); len(across) > 1 {
			s.find(Step, "metadata.annotations["+v1beta1.MetalLBPrefixes()[0]+v1beta1.MetalLBShareKey+"]", key, "Services of the namespaces %s have this key: what they share they keep, and to share an address anew each needs "+
				"%s with the names of the others", strings.Join(across, ", "), v1beta1.AnnotationShareWith)
		}
	}
	for _, pool := range slices.Sorted(maps.Keys(use.pools)) {
		if who := use.pools[pool]; !pools[pool] {
			s.find(Step, "metadata.annotations", pool, "%s (such as %s) for this pool, which is not in what is printed: make it, or have them ask for another", services(len(who), " asks", " ask"), who[0])
		}
	}
	if use.noted > 0 {
		s.find(Differs, "metadata.annotations["+v1beta1.MetalLBPrefixes()[0]+v1beta1.MetalLBAllocatedFrom+"]", nil, "MetalLB's own note on %s; it is not read here and may be removed", services(use.noted, "", ""))
	}
	for _, class := range slices.Sorted(maps.Keys(use.classes)) {
		s.find(Step, "spec.loadBalancerClass", class, "%s of this class: if it is MetalLB's (its --lb-class), set the chart's loadBalancerClass to it, and serveUnclassed to true if those without a class (%d) are to be served as well", services(use.classes[class], " is", " are"), use.unclassed)
	}
	t.Findings = append(t.Findings, s.findings...)
}

// services is a number of Services with what they do, such as "1 Service asks" or "2 Services ask".
func services(n int, one, many string) string {
	if n == 1 {
		return "1 Service" + one
	}
	return fmt.Sprintf("%d Services%s", n, many)
}

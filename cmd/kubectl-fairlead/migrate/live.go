package migrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.dev/fairlead/internal/metallb"
)

// cluster says where the API server is: a kubeconfig and a context, or as kubectl
// finds them.
type cluster struct {
	kubeconfig, context string
}

// read reads MetalLB's objects of its namespace, and the Services and the configurations of frr-k8s of all.
func (c cluster) read(ctx context.Context, namespace string) ([]unstructured.Unstructured, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	api, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	resources, err := kinds(config)
	if err != nil {
		return nil, fmt.Errorf("list the kinds of %s: %w", metallb.Group, err)
	}
	if !slices.ContainsFunc(resources, func(r schema.GroupVersionResource) bool { return r.Group == metallb.Group }) {
		return nil, errors.New("the cluster knows no kind of " + metallb.Group + ": MetalLB is not installed, or it is older than v0.13")
	}
	all, err := listEach(ctx, api, resources, namespace)
	if err != nil {
		return nil, err
	}
	for _, name := range metallb.ConfigMaps() {
		found, err := api.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			all = append(all, *found)
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("get the ConfigMap %s in the namespace %s: %w", name, namespace, err)
		}
	}
	services, err := list(ctx, api.Resource(schema.GroupVersionResource{Version: "v1", Resource: "services"}))
	if err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	return append(all, services...), nil
}

// listEach lists the objects of MetalLB in its namespace, of which there must be some, and those of frr-k8s in all.
func listEach(ctx context.Context, api dynamic.Interface, resources []schema.GroupVersionResource, namespace string) ([]unstructured.Unstructured, error) {
	var all []unstructured.Unstructured
	some := false
	for _, r := range resources {
		theirs := r.Group == metallb.Group
		in, where := namespace, "the namespace "+namespace
		if !theirs {
			in, where = metav1.NamespaceAll, "all namespaces"
		}
		found, err := list(ctx, api.Resource(r).Namespace(in))
		if err != nil {
			return nil, fmt.Errorf("list %s in %s: %w", r.GroupResource(), where, err)
		}
		some = some || theirs && len(found) > 0
		all = append(all, found...)
	}
	if !some {
		return nil, fmt.Errorf("the namespace %s has no object of %s: if MetalLB runs in another one, name it with --metallb-namespace", namespace, metallb.Group)
	}
	return all, nil
}

// kinds returns all of MetalLB's that the API server knows, each in one version, the newest: what a release has that this
// program does not know is to be told of, too. Of frr-k8s it returns the configurations. The API servers of other groups may be
// out of reach.
func kinds(config *rest.Config) ([]schema.GroupVersionResource, error) {
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	groups, err := discovery.ServerPreferredNamespacedResources(api)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	listed := discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, groups)
	found, err := discovery.GroupVersionResources(listed)
	maps.DeleteFunc(found, func(r schema.GroupVersionResource, _ struct{}) bool {
		return r.Group != metallb.Group && (r.Group != metallb.GroupFRR || r.Resource != "frrconfigurations")
	})
	return slices.Collect(maps.Keys(found)), err
}

func list(ctx context.Context, of dynamic.ResourceInterface) ([]unstructured.Unstructured, error) {
	all, err := of.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}

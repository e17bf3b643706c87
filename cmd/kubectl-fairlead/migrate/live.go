package migrate

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.dev/fairlead/internal/metallb"
)

// cluster says where the API server is: a kubeconfig and a context, or as kubectl
// finds them.
type cluster struct {
	kubeconfig, context string
}

// resource is one of MetalLB's, with its versions, the newest first.
type resource struct {
	name     string
	versions []string
}

// resources are what users write for MetalLB.
func resources() []resource {
	return []resource{
		{"ipaddresspools", []string{"v1beta1"}},
		{"l2advertisements", []string{"v1beta1"}},
		{"bgpadvertisements", []string{"v1beta1"}},
		{"bgppeers", []string{"v1beta2", "v1beta1"}},
		{"bfdprofiles", []string{"v1beta1"}},
		{"communities", []string{"v1beta1"}},
	}
}

// read reads MetalLB's objects of its namespace, and the Services of all.
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
	var all []unstructured.Unstructured
	known := false
	for _, r := range resources() {
		found, err := listNewest(ctx, api, r, namespace)
		if apierrors.IsNotFound(err) {
			continue // a MetalLB that is older than the kind
		}
		if err != nil {
			return nil, fmt.Errorf("list %s.%s in the namespace %s: %w", r.name, metallb.Group, namespace, err)
		}
		known = true
		all = append(all, found...)
	}
	if !known {
		return nil, errors.New("the cluster knows no kind of " + metallb.Group + ": MetalLB is not installed, or it is older than v0.13")
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

// listNewest lists in the newest version that the API server knows. The error is
// NotFound if it knows none.
func listNewest(ctx context.Context, api dynamic.Interface, r resource, namespace string) ([]unstructured.Unstructured, error) {
	var err error
	for _, version := range r.versions {
		var found []unstructured.Unstructured
		found, err = list(ctx, api.Resource(schema.GroupVersionResource{Group: metallb.Group, Version: version, Resource: r.name}).Namespace(namespace))
		if !apierrors.IsNotFound(err) {
			return found, err
		}
	}
	return nil, err
}

func list(ctx context.Context, of dynamic.ResourceInterface) ([]unstructured.Unstructured, error) {
	all, err := of.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}

// Package skew is "kubectl fairlead version": it tells which versions of Fairlead's parts run in a cluster, and
// whether these fit together.
package skew

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Run reads the cluster and writes a line for each part, and for each thing that does not fit. With -client it tells
// this program's version alone. An error is that of a flag or of reading the cluster.
func Run(ctx context.Context, version string, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("kubectl fairlead version", flag.ContinueOnError)
	flags.SetOutput(stderr)
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "the kubeconfig `file`; default: as kubectl finds it")
	inContext := flags.String("context", "", "the `context` of the kubeconfig; default: the current one")
	client := flags.Bool("client", false, "tell the version of this program alone")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *client {
		_, err := fmt.Fprintln(stdout, version)
		return err
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: *inContext}).ClientConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w: name a kubeconfig, or ask with -client for this program's version (%s) alone", err, version)
	}
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=fairlead"}
	sets, err := api.AppsV1().DaemonSets("").List(ctx, ours)
	if err != nil {
		return fmt.Errorf("list DaemonSets: %w", err)
	}
	pods, err := api.CoreV1().Pods("").List(ctx, ours)
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	_, err = io.WriteString(stdout, report(version, sets.Items, pods.Items))
	return err
}

// report is what is said of a cluster. The version of a pod is the tag of its image.
func report(client string, sets []appsv1.DaemonSet, pods []corev1.Pod) string {
	versions := map[string]map[string][]string{} // part → version → where it is
	add := func(part, version, where string) {
		if versions[part] == nil {
			versions[part] = map[string][]string{}
		}
		versions[part][version] = append(versions[part][version], where)
	}
	add("kubectl-fairlead", client, "here")
	for _, set := range sets {
		add("chart", strings.TrimPrefix(set.Labels["helm.sh/chart"], "fairlead-"), set.Namespace)
	}
	for _, pod := range pods {
		for _, container := range pod.Spec.Containers {
			where := pod.Spec.NodeName
			if where == "" {
				where = "no node yet"
			}
			part := pod.Labels["app.kubernetes.io/component"]
			if container.Name != part {
				part += "/" + container.Name
			}
			add(part, tag(container.Image), where)
		}
	}
	var out strings.Builder
	distinct := map[string]bool{}
	for _, part := range slices.Sorted(maps.Keys(versions)) {
		for _, version := range slices.Sorted(maps.Keys(versions[part])) {
			distinct[version] = true
			where := slices.Compact(slices.Sorted(slices.Values(versions[part][version])))
			fmt.Fprintf(&out, "%-18s %-16s %s\n", part, version, strings.Join(where, ", "))
		}
	}
	switch {
	case len(sets) == 0:
		out.WriteString("Fairlead is not installed in this cluster: no DaemonSet has the label app.kubernetes.io/name=fairlead\n")
	case len(distinct) > 1:
		fmt.Fprintf(&out, "skew: there are %s; wait until the upgrade is done, or helm upgrade to one of them\n",
			strings.Join(slices.Sorted(maps.Keys(distinct)), ", "))
	}
	return out.String()
}

// tag is the version that an image has: its tag, else its digest.
func tag(image string) string {
	name, digest, _ := strings.Cut(image, "@")
	if at := strings.LastIndex(name, ":"); at > strings.LastIndex(name, "/") {
		return name[at+1:]
	}
	if digest != "" {
		return digest
	}
	return "latest"
}

package fromkube

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
)

// ReasonUnknownAnnotation is of objects with annotations or labels that look like those which Services ask for something
// by, and mean nothing where they are.
const ReasonUnknownAnnotation = "UnknownAnnotation"

const prefix = v1beta1.GroupName + "/"

// asks are the annotations by which Services ask for something, and what MetalLB calls them.
func asks() map[string]string {
	return map[string]string{
		v1beta1.AnnotationAddresses: v1beta1.MetalLBAddresses, v1beta1.AnnotationPool: v1beta1.MetalLBPool,
		v1beta1.AnnotationShareKey: v1beta1.MetalLBShareKey, v1beta1.AnnotationShareWith: "", v1beta1.AnnotationReservation: "",
	}
}

// Stray tells of the annotations and labels of an object that mean nothing there and look like those by which Services ask
// for something; nil if nothing does. Other labels below our prefix, and those of other kinds, are for selectors.
func (o Requests) Stray(object problem.Object, of metav1.Object) *problem.Problem {
	var told []string
	for _, key := range slices.Sorted(maps.Keys(of.GetAnnotations())) {
		if why := o.strayAnnotation(object.Kind, key); why != "" {
			told = append(told, fmt.Sprintf("annotation %q %s", quotable(key), why))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(of.GetLabels())) {
		if name, ours := cutPrefix(key, prefix); ours && object.Kind == "Service" && distance(name, nearest(name)) < 2 {
			told = append(told, fmt.Sprintf("label %q asks for nothing: write it as the annotation %s", quotable(key), prefix+nearest(name)))
		}
	}
	if len(told) == 0 {
		return nil
	}
	p := problem.Advice(object, ReasonUnknownAnnotation, "%s", problem.List(told, "; "))
	return &p
}

// strayAnnotation says why an annotation of a kind of object means nothing; "" where it does, or is none of ours.
func (o Requests) strayAnnotation(kind, key string) string {
	if name, ours := cutPrefix(key, prefix); ours {
		_, known := asks()[key]
		switch near := nearest(name); {
		case kind != "Service":
			return fmt.Sprintf("means nothing on this kind of object: write %s on a Service", prefix+near)
		case known:
			return ""
		default:
			return fmt.Sprintf("means nothing: is %s meant? Those that are read are %s", prefix+near, strings.Join(slices.Sorted(maps.Keys(asks())), ", "))
		}
	}
	for _, theirs := range v1beta1.MetalLBPrefixes() {
		name, is := cutPrefix(key, theirs)
		if !is || kind != "Service" || key == theirs+v1beta1.MetalLBAllocatedFrom {
			continue
		}
		ours := prefix + nearest(name)
		known := asks()[ours]
		switch exact := known != "" && key == theirs+known; {
		case exact && o.MetalLB, !exact && !o.MetalLB:
			return ""
		case exact:
			return fmt.Sprintf("is not read, as the chart's metallbAnnotations is false: write %s", ours)
		case known == "":
			return fmt.Sprintf("means nothing: is %s meant?", ours)
		default:
			return fmt.Sprintf("means nothing: is %s meant, or better %s?", theirs+known, ours)
		}
	}
	return ""
}

// cutPrefix takes a prefix off a key, of which the API server takes the domain in any case of letters.
func cutPrefix(key, prefix string) (name string, has bool) {
	if len(key) < len(prefix) || !strings.EqualFold(key[:len(prefix)], prefix) {
		return "", false
	}
	return key[len(prefix):], true
}

// nearest is the name of ours that a name is most like, by ours or by MetalLB's: the first of several.
func nearest(name string) string {
	best, least := "", 0
	for _, key := range slices.Sorted(maps.Keys(asks())) {
		for _, known := range []string{strings.TrimPrefix(key, prefix), asks()[key]} {
			if far := distance(name, known); known != "" && (best == "" || far < least) {
				best, least = strings.TrimPrefix(key, prefix), far
			}
		}
	}
	return best
}

// distance is how many letters are to be put in, taken out or replaced to make one name of another (Levenshtein), without
// regard to case. A key has 63 bytes after its prefix.
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	row := make([]int, len(b)+1)
	for i := range row {
		row[i] = i
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}

package fromkube

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// wellKnown are the communities that have names, as IANA registers them.
var wellKnown = map[string]uint32{
	"graceful-shutdown":   0xffff0000, // RFC 8326
	"accept-own":          0xffff0001, // RFC 7611
	"blackhole":           0xffff029a, // RFC 7999
	"no-export":           0xffffff01, // RFC 1997
	"no-advertise":        0xffffff02, // RFC 1997
	"no-export-subconfed": 0xffffff03, // RFC 1997
	"no-peer":             0xffffff04, // RFC 3765
}

// readCommunity reads a community: a well-known name, asn:value (RFC 1997) or
// large:asn:value:value (RFC 8092).
func readCommunity(text string) (view.CommunityValue, error) {
	if community, ok := wellKnown[text]; ok {
		return view.CommunityValue{Standard: community}, nil
	}
	if rest, large := strings.CutPrefix(text, "large:"); large {
		n, ok := numbers(rest, 3, 32)
		if !ok {
			return view.CommunityValue{}, fmt.Errorf("%q is no large community; write large:asn:value:value, each 0 to 4294967295", text)
		}
		return view.CommunityValue{Large: &view.LargeCommunity{Global: n[0], Local1: n[1], Local2: n[2]}}, nil
	}
	n, ok := numbers(text, 2, 16)
	if !ok {
		return view.CommunityValue{}, fmt.Errorf("%q is no community; write asn:value, each 0 to 65535, large:asn:value:value, or a well-known name such as no-export", text)
	}
	return view.CommunityValue{Standard: n[0]<<16 | n[1]}, nil
}

// isName reports whether the text may be one that a Community has.
func isName(text string) bool {
	_, known := wellKnown[text]
	return !known && text != "" && !strings.Contains(text, ":") && (text[0] < '0' || text[0] > '9')
}

// Community reads a Community. A value that cannot be read is a problem, and nothing has
// its name.
func Community(o *v1beta1.Community) (*view.Community, []problem.Problem) {
	v := &view.Community{Name: o.Name, Created: o.CreationTimestamp.Time, Values: make(map[string]view.CommunityValue, len(o.Spec.Communities))}
	var problems []problem.Problem
	for i, alias := range o.Spec.Communities {
		value, err := readCommunity(alias.Value)
		if err != nil {
			problems = append(problems, problem.New(v.Object(), ReasonInvalidCommunity, "spec.communities[%d]: %v", i, err))
			continue
		}
		v.Values[alias.Name] = value
	}
	return v, problems
}

// numbers reads so many numbers of so many bits with colons between them.
func numbers(text string, count, bits int) ([]uint32, bool) {
	var found []uint32
	for part := range strings.SplitSeq(text, ":") {
		n, err := strconv.ParseUint(part, 10, bits)
		if err != nil {
			return nil, false
		}
		found = append(found, uint32(n))
	}
	return slices.Clip(found), len(found) == count
}

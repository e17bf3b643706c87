package metallb

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/testenv/malformed"
)

// TestEveryFieldOfAPeerIsRead: what is read is translated or told of; what is not read would
// be told of as unknown.
func TestEveryFieldOfAPeerIsRead(t *testing.T) {
	t.Parallel()
	var read []string
	for field := range reflect.TypeFor[peerSpec]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		read = append(read, name)
	}
	slices.Sort(read)
	if want := malformed.PeerFieldsOfMetalLB(); !slices.Equal(read, want) {
		t.Errorf("read are\n%v, and MetalLB has\n%v", read, want)
	}
}

package owner

import (
	"net/netip"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fairlead.dev/fairlead/internal/view"
)

var compareAddrs = cmp.Options{
	cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty(),
	cmp.Transformer("secret", func(s view.Secret) []byte { return []byte(s) }),
}

package v1beta1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxName and maxLabel are how long the name of an object, and the value of
// a label, may be, in bytes.
const (
	maxName  = 253
	maxLabel = 63
)

// SessionName is the name of the BGPSession of a node with a peer:
// PEER.NODE. Where that could be the name of another one as well, since the
// peer has a dot in its name, or is too long for a name, the peer's part is
// cut and ends in a digest.
func SessionName(node, peer string) string {
	if name := peer + "." + node; len(name) <= maxName && !strings.Contains(peer, ".") {
		return name
	}
	peer = digested(strings.ReplaceAll(peer, ".", "-"), peer+"/"+node, maxLabel)
	return peer + "." + strings.TrimRight(node[:min(len(node), maxName-maxLabel-1)], "-.")
}

// LabelValue is the name of a node or a peer as the value of a label. A name
// that is too long for that is cut and ends in a digest.
func LabelValue(name string) string {
	if len(name) <= maxLabel {
		return name
	}
	return digested(name, name, maxLabel)
}

// digested is the text, cut so that it has most bytes with the digest of
// whole.
func digested(text, whole string, most int) string {
	sum := sha256.Sum256([]byte(whole))
	digest := "-" + hex.EncodeToString(sum[:5])
	return strings.TrimRight(text[:min(len(text), most-len(digest))], "-.") + digest
}

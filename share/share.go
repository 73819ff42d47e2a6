// Package share names what the engine, the server of a pod's shared directories and its
// helper have to agree on.
//
// A server is a process of its own for each pod that has a directory of the host, in a
// mount namespace in which nothing is but those directories (package attach puts them there),
// and answers the FUSE messages of the pod's guest (packages wire, fsys, server).
package share

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Program is the executable of server and helper, and the word that tells them apart.
const (
	Program = "bulkhead-share"
	Serve   = "serve"
	Attach  = "attach"
)

// Dir is the directory in the server's namespace that holds the shared ones, by their names.
const Dir = "/shares"

// Ready is what a server says on its stdout when it serves; anything else is why it does not.
const Ready = "ready"

// PortFD is a server's connection to the guest, which it inherits. It makes its namespace when
// a first byte comes on its stdin, says Ready or why not, and serves when a second one comes.
// It ends when its stdin ends without them.
const PortFD = 3

// Cache is what the guest's kernel may remember of a directory.
type Cache string

// The caches. Auto is the default: what changes on the host is seen within a second, and when
// a file is opened. None asks the host each time. Always never asks again, which is for
// directories that nobody changes.
const (
	Auto   Cache = "auto"
	None   Cache = "none"
	Always Cache = "always"
)

// ErrCache is matched by the error for a cache that is none of these.
var ErrCache = errors.New("cache must be auto, none or always")

// ParseCache reads a cache, of which the empty string is Auto.
func ParseCache(text string) (Cache, error) {
	switch c := Cache(text); c {
	case "":
		return Auto, nil
	case Auto, None, Always:
		return c, nil
	}
	return "", fmt.Errorf("%w, not %.32q", ErrCache, text)
}

// Name is what a directory or file of the host is called in a pod: the same for the same path
// and the same way of sharing it, whichever engine asks. With follow mounts are seen that the
// host makes below it later; with setID the guest can make programs of set-user-id.
func Name(path string, readOnly, follow, setID bool, c Cache) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%t%t", path, readOnly, follow))
	name := string(c) + "-" + hex.EncodeToString(sum[:12])
	switch {
	case readOnly:
		name += readOnlySuffix
	case setID:
		name += setIDSuffix
	}
	return name
}

const (
	readOnlySuffix = "-ro"
	setIDSuffix    = "-suid"
)

// ReadOnly tells whether the directory of that name is only to be read.
func ReadOnly(name string) bool { return strings.HasSuffix(name, readOnlySuffix) }

// SetID tells whether what the guest makes in the directory of that name may be set-user-id.
func SetID(name string) bool { return strings.HasSuffix(name, setIDSuffix) }

// CacheOf is the cache of the directory of that name, false for what is no such name.
func CacheOf(name string) (Cache, bool) {
	word, sum, cut := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(name, readOnlySuffix), setIDSuffix), "-")
	if c, err := ParseCache(word); err == nil && cut && word != "" && len(sum) == 24 && strings.Trim(sum, "0123456789abcdef") == "" {
		return c, true
	}
	return "", false
}

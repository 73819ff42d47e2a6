// Package share has the names that the engine, the share server of a pod and its helper must agree on.
//
// A server is a process for each pod that has a directory of the host. It runs in a mount namespace with only those
// directories (package attach mounts them there), and answers the FUSE messages of the pod's guest (packages wire,
// fsys, server).
package share

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Program is the executable of server and helper. Serve and Attach are their arguments. Rehearse is the argument of the
// server of a VM without a pod.
const (
	Program  = "bulkhead-share"
	Serve    = "serve"
	Attach   = "attach"
	Rehearse = "rehearse"
)

// Dir is the directory with the shares in the server's namespace.
const Dir = "/shares"

// Ready is a server's output on stdout when it serves; anything else is an error message.
const Ready = "ready"

// PortFD is a server's connection to the guest, which it inherits. After the first byte on its stdin the server creates
// its namespace and prints Ready or an error. After the second byte it serves. It ends if its stdin ends without them.
const PortFD = 3

// Cache says what the guest's kernel may cache of a directory.
type Cache string

// The caches. Auto is the default: changes on the host are visible within a second, and when a file is opened. None
// asks the host each time. Always never asks again, for directories that do not change.
const (
	Auto   Cache = "auto"
	None   Cache = "none"
	Always Cache = "always"
)

// ParseCache parses a cache. The empty string means Auto.
func ParseCache(text string) (Cache, error) {
	switch c := Cache(text); c {
	case "":
		return Auto, nil
	case Auto, None, Always:
		return c, nil
	}
	return "", fmt.Errorf("cache must be auto, none or always, not %.32q", text)
}

// Name returns the name of a host's directory or file in a pod. It is the same for the same path and options, whichever
// engine asks. With follow, later mounts of the host below it are visible. With setID, the guest can create set-user-id
// programs.
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

// ReadOnly reports whether the directory with that name is read-only.
func ReadOnly(name string) bool { return strings.HasSuffix(name, readOnlySuffix) }

// SetID reports whether the guest may create set-user-id files in the directory with that name.
func SetID(name string) bool { return strings.HasSuffix(name, setIDSuffix) }

// CacheOf returns the cache of the directory with that name, and false for an invalid name.
func CacheOf(name string) (Cache, bool) {
	word, sum, cut := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(name, readOnlySuffix), setIDSuffix), "-")
	if c, err := ParseCache(word); err == nil && cut && word != "" && len(sum) == 24 && strings.Trim(sum, "0123456789abcdef") == "" {
		return c, true
	}
	return "", false
}

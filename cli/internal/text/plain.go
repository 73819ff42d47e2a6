// Package text makes texts and figures fit for a line of a terminal.
package text

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/bulkhead-project/bulkhead/internal/shortid"
)

// id is what the lower layers call pods, containers and processes by; digests
// of images, which look alike, are left whole.
var id = regexp.MustCompile(`(sha256:)?[0-9a-f]{32,64}`)

// Plain makes a message one line, with ids as short as ps shows them.
func Plain(message string) string {
	// Part of it may be a pod's own words.
	message = Printable(strings.Join(strings.Fields(message), " "))
	return id.ReplaceAllStringFunc(message, func(s string) string {
		if strings.HasPrefix(s, "sha256:") {
			return s
		}
		return shortid.Of(s)
	})
}

// CannotRun is the part of a message that says why a command cannot be run,
// without the way that it took through the layers.
func CannotRun(message string) string {
	for _, op := range []string{"crun create: ", "crun exec: "} {
		if i := strings.LastIndex(message, op); i >= 0 {
			message = message[i+len(op):]
		}
	}
	if i := strings.LastIndex(message, ": command ended with"); i >= 0 {
		message = message[:i]
	}
	return Plain(message)
}

// Printable leaves of a text what may be shown on a terminal.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, text)
}

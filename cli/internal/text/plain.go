// Package text formats texts and figures for one line of a terminal.
package text

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/bulkhead-project/bulkhead/internal/shortid"
)

// id matches the internal ids of pods, containers and processes. It also matches digests of images, which Plain
// keeps whole.
var id = regexp.MustCompile(`(sha256:)?[0-9a-f]{32,64}`)

// Plain turns a message into one line, with ids shortened as in ps.
func Plain(message string) string {
	// Parts of the message may come from a pod.
	message = Printable(strings.Join(strings.Fields(message), " "))
	return id.ReplaceAllStringFunc(message, func(s string) string {
		if strings.HasPrefix(s, "sha256:") {
			return s
		}
		return shortid.Of(s)
	})
}

// CannotRun returns the part of a message that says why a command cannot run, without the prefixes of the layers.
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

// Printable removes characters that must not reach a terminal.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, text)
}

// Package printable makes hostile text safe for terminals and logs.
package printable

import "strings"

// Text replaces control characters, except for new lines and tabs, and invalid UTF-8 by '?'.
func Text(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// Package printable keeps text of hostile origin from doing anything to a
// terminal or a log.
package printable

import "strings"

// Text replaces control characters, but for new lines and tabs, and what is no
// UTF-8 by '?'.
func Text(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

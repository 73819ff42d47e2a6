package oci

import (
	"fmt"
	"strings"
)

// Volume is a directory of the host under a name of the guest, as in virtcontainers: "tag:path".
type Volume struct{ Tag, Path string }

// Socket is a connection between the guest and a socket of the host, as in virtcontainers: "device:id:path:name".
type Socket struct{ DeviceID, ID, Path, Name string }

// ParseVolumes parses volumes that spaces separate. A backslash makes a following space, colon or backslash part of a
// name. Empty parts are ErrInvalid.
func ParseVolumes(text string) (volumes []Volume, err error) {
	for _, parts := range splitList(text) {
		if err := checkParts("volume", "tag:path", 2, parts); err != nil {
			return nil, err
		}
		volumes = append(volumes, Volume{parts[0], parts[1]})
	}
	return volumes, nil
}

// ParseSockets parses sockets in the same form.
func ParseSockets(text string) (sockets []Socket, err error) {
	for _, parts := range splitList(text) {
		if err := checkParts("socket", "device:id:path:name", 4, parts); err != nil {
			return nil, err
		}
		sockets = append(sockets, Socket{parts[0], parts[1], parts[2], parts[3]})
	}
	return sockets, nil
}

func checkParts(what, form string, n int, parts []string) error {
	if len(parts) != n {
		return fmt.Errorf("%w: %s %.128q must be %s", ErrInvalid, what, joinParts(parts...), form)
	}
	for _, part := range parts {
		if part == "" || strings.ContainsAny(part, "\x00\n") {
			return fmt.Errorf("%w: %s %.128q has an empty or unprintable part", ErrInvalid, what, joinParts(parts...))
		}
	}
	return nil
}

var escaper = strings.NewReplacer(`\`, `\\`, ` `, `\ `, `:`, `\:`)

func joinParts(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, part := range parts {
		escaped[i] = escaper.Replace(part)
	}
	return strings.Join(escaped, ":")
}

// splitList splits a text at spaces, and each element at colons. Several spaces act as one.
func splitList(text string) (list [][]string) {
	var element []string
	var part strings.Builder
	begun := false
	end := func() {
		if begun {
			list = append(list, append(element, part.String()))
		}
		element, begun = nil, false
		part.Reset()
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == ' ':
			end()
			continue
		case c == ':':
			element = append(element, part.String())
			part.Reset()
		case c == '\\' && i+1 < len(text) && strings.IndexByte(`\ :`, text[i+1]) >= 0:
			i++
			part.WriteByte(text[i])
		default:
			part.WriteByte(c)
		}
		begun = true
	}
	end()
	return list
}

package oci

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVolumes(t *testing.T) {
	for text, want := range map[string][]Volume{
		"":                     nil,
		"  ":                   nil,
		"a:/srv":               {{"a", "/srv"}},
		" a:/srv  b:/x ":       {{"a", "/srv"}, {"b", "/x"}},
		`a:/with\ space\:\\ok`: {{"a", `/with space:\ok`}},
		`a:/b\c\`:              {{"a", `/b\c\`}},
	} {
		got, err := ParseVolumes(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v %s", text, err, diff)
		}
	}
	for _, text := range []string{"a", ":", "a:", ":/srv", "a:/b:c", "a:/b :", "a:/b\n", "::"} {
		if got, err := ParseVolumes(text); !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestSockets(t *testing.T) {
	got, err := ParseSockets(`ch0:id0:/run/a\ b.sock:name ch1:id1:/x:n`)
	if diff := cmp.Diff([]Socket{{"ch0", "id0", "/run/a b.sock", "name"}, {"ch1", "id1", "/x", "n"}}, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	for _, text := range []string{"a:b:c", "a:b:c:d:e", "a::c:d", "a:b:c:", ":b:c:d"} {
		if got, err := ParseSockets(text); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// FuzzVolumes: the printed form of parsed volumes and sockets is parsed to the same.
func FuzzVolumes(f *testing.F) {
	f.Add(`a:/srv b:/with\ space`)
	f.Add(`a:b:c:d`)
	f.Fuzz(func(t *testing.T, text string) {
		if volumes, err := ParseVolumes(text); err == nil {
			again, err := ParseVolumes(formatVolumes(volumes))
			if diff := cmp.Diff(volumes, again); diff != "" || err != nil {
				t.Errorf("%q: %v %s", text, err, diff)
			}
		}
		if sockets, err := ParseSockets(text); err == nil {
			again, err := ParseSockets(formatSockets(sockets))
			if diff := cmp.Diff(sockets, again); diff != "" || err != nil {
				t.Errorf("%q: %v %s", text, err, diff)
			}
		}
	})
}

// formatVolumes is the inverse of ParseVolumes.
func formatVolumes(volumes []Volume) string {
	var list []string
	for _, v := range volumes {
		list = append(list, joinParts(v.Tag, v.Path))
	}
	return strings.Join(list, " ")
}

// formatSockets is the inverse of ParseSockets.
func formatSockets(sockets []Socket) string {
	var list []string
	for _, s := range sockets {
		list = append(list, joinParts(s.DeviceID, s.ID, s.Path, s.Name))
	}
	return strings.Join(list, " ")
}

package fields

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// maxUnknown bounds the results of Unknown.
const maxUnknown = 32

// Unknown returns the paths of up to 32 fields in a config.json that specs.Spec does not have, sorted within each
// object. A runtime must ignore such fields. It returns nil for malformed input.
func Unknown(config []byte) []string {
	var u unknown
	u.visit(config, reflect.TypeFor[specs.Spec](), "")
	return u.paths
}

type unknown struct{ paths []string }

// visit compares a value in JSON with a type. Values of other types than expected are skipped.
func (u *unknown) visit(raw json.RawMessage, t reflect.Type, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case len(u.paths) >= maxUnknown:
	case t.Kind() == reflect.Slice && isStruct(t.Elem()):
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) == nil {
			for i, one := range list {
				u.visit(one, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
			}
		}
	case IsSpec(t):
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil {
			return
		}
		names := make([]string, 0, len(object))
		for name := range object {
			names = append(names, name)
		}
		slices.Sort(names)
		known := reflect.VisibleFields(t)
		for _, name := range names {
			// Package json ignores case too.
			i := slices.IndexFunc(known, func(f reflect.StructField) bool { return !f.Anonymous && strings.EqualFold(nameOf(f), name) })
			switch {
			case i >= 0:
				u.visit(object[name], known[i].Type, join(path, nameOf(known[i])))
			case len(u.paths) < maxUnknown:
				u.paths = append(u.paths, fmt.Sprintf("%.200s", join(path, name)))
			}
		}
	}
}

func isStruct(t reflect.Type) bool {
	return IsSpec(t) || t.Kind() == reflect.Pointer && IsSpec(t.Elem())
}

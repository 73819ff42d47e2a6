package fields

import (
	"encoding/json"
	"fmt"
	"maps"
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
	var top any
	if json.Unmarshal(config, &top) != nil {
		return nil
	}
	var u unknown
	u.visit(top, reflect.TypeFor[specs.Spec](), "")
	return u.paths
}

type unknown struct{ paths []string }

// visit compares a value of JSON with a type. Values of other types than expected are skipped.
func (u *unknown) visit(value any, t reflect.Type, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	list, isList := value.([]any)
	object, isObject := value.(map[string]any)
	switch {
	case len(u.paths) >= maxUnknown:
	case isList && t.Kind() == reflect.Slice && isStruct(t.Elem()):
		for i, one := range list {
			u.visit(one, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	case isObject && IsSpec(t):
		known := reflect.VisibleFields(t)
		for _, name := range slices.Sorted(maps.Keys(object)) {
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

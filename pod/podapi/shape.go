package podapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bulkhead-project/bulkhead/pod/internal/nearest"
	"github.com/bulkhead-project/bulkhead/pod/podapi/fields"
)

// shape compares a value with its type in the API. It reports mismatches with the line, the path and its indexes, in
// YAML's terms.
type shape struct {
	report func(line int, field, message string)
	wrong  bool // a value has another type
	// unknown counts fields that the API does not have.
	unknown int
}

// fit compares text, the JSON of node, with t. field is the path, with a dot at its end unless it is empty.
func (s *shape) fit(text []byte, node *yamlv3.Node, t reflect.Type, field string) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil { // it was made from YAML
		s.mismatch(place{node, 0, field}, err.Error())
		return
	}
	s.value(value, t, place{node: node, path: field})
}

// place is the place of a value: its node, nil if unknown, the line of its key, and its path.
type place struct {
	node *yamlv3.Node
	line int
	path string
}

// entries returns a function that finds the places of entries of the map at p by name. before is the path before a
// name.
func (p place) entries(before string) func(name string) place {
	found := make(map[string]place)
	if node := unalias(p.node); node != nil && node.Kind == yamlv3.MappingNode {
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			found[key.Value] = place{node: node.Content[i+1], line: key.Line, path: before + key.Value}
		}
	}
	return func(name string) place {
		if one, known := found[name]; known {
			return one
		}
		return place{line: p.line, path: before + name} // the entry was merged
	}
}

// item returns the place of an item of the list at p.
func (p place) item(i int) place {
	out := place{line: p.line, path: fmt.Sprintf("%s[%d]", p.path, i)}
	if list := unalias(p.node); list != nil && i < len(list.Content) {
		out.node = list.Content[i]
		out.line = out.node.Line
	}
	return out
}

func (s *shape) mismatch(at place, message string) {
	s.wrong = true
	s.report(at.line, at.path, message)
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func (s *shape) value(value any, t reflect.Type, at place) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil || t.Kind() == reflect.Interface {
		return
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		s.special(value, t, at)
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		s.fields(value, t, at)
	case reflect.Map:
		entries, is := value.(map[string]any)
		if !is {
			s.mismatch(at, "is "+typeName(value)+", and must be a map")
			return
		}
		entry := at.entries(at.path + ".")
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			s.value(entries[key], t.Elem(), entry(key))
		}
	case reflect.Slice:
		s.list(value, t, at)
	default:
		s.scalar(value, t, at)
	}
}

// fields compares a map with a struct of the API.
func (s *shape) fields(value any, t reflect.Type, at place) {
	entries, is := value.(map[string]any)
	if !is {
		s.mismatch(at, "is "+typeName(value)+", and must be a map of fields")
		return
	}
	before := at.path
	if before != "" && !strings.HasSuffix(before, ".") {
		before += "."
	}
	known, entry := fieldsOf(t), at.entries(before)
	names := slices.Collect(maps.Keys(known))
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if field, found := known[name]; found {
			s.value(entries[name], field, entry(name))
		} else if s.unknown++; s.unknown <= maxFaults {
			unknown := entry(name)
			s.report(unknown.line, unknown.path, "unknown field"+nearest.Suggest(name, names))
		}
	}
}

// fieldsOf returns the fields of a struct by their names in YAML.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := make(map[string]reflect.Type)
	for i := range t.NumField() {
		field := t.Field(i)
		name, embedded := fields.JSONName(field)
		if embedded {
			for name, inner := range fieldsOf(field.Type) {
				out[name] = inner
			}
			continue
		}
		out[name] = field.Type
	}
	return out
}

func (s *shape) list(value any, t reflect.Type, at place) {
	if t.Elem().Kind() == reflect.Uint8 {
		text, is := value.(string)
		if _, err := base64.StdEncoding.DecodeString(text); !is || err != nil {
			s.mismatch(at, "must be text in base64") // the value may be a secret
		}
		return
	}
	items, is := value.([]any)
	if !is {
		s.mismatch(at, "is "+typeName(value)+", and must be a list")
		return
	}
	for i, item := range items {
		s.value(item, t.Elem(), at.item(i))
	}
}

func (s *shape) scalar(value any, t reflect.Type, at place) {
	number, isNumber := value.(json.Number)
	switch t.Kind() {
	case reflect.String:
		if _, is := value.(string); !is {
			hint := ""
			if _, isBool := value.(bool); isBool || isNumber {
				hint = ": put it in quotes"
			}
			s.mismatch(at, "is "+typeName(value)+", and must be text"+hint)
		}
	case reflect.Bool:
		if _, is := value.(bool); !is {
			s.mismatch(at, "is "+typeName(value)+", and must be true or false")
		}
	default:
		if !isNumber {
			s.mismatch(at, "is "+typeName(value)+", and must be a whole number")
		} else if _, err := strconv.ParseInt(number.String(), 10, t.Bits()); err != nil {
			s.mismatch(at, "is "+number.String()+", and must be a whole number of at most "+strconv.Itoa(t.Bits())+" bits")
		}
	}
}

// special compares a value with a type that decodes JSON by itself.
func (s *shape) special(value any, t reflect.Type, at place) {
	text, err := json.Marshal(value)
	if err == nil {
		err = reflect.New(t).Interface().(json.Unmarshaler).UnmarshalJSON(text)
	}
	if err == nil {
		return
	}
	form := map[string]string{
		"Quantity": "a quantity such as 500m or 64Mi", "IntOrString": "a number or text", "Time": "a time such as 2026-01-31T12:00:00Z",
		"MicroTime": "a time such as 2026-01-31T12:00:00.000000Z", "Duration": "a duration such as 30s",
	}[t.Name()]
	switch {
	case form == "":
		s.mismatch(at, err.Error())
	case t == reflect.TypeFor[resource.Quantity]() && isText(value):
		s.mismatch(at, fmt.Sprintf("%q must be %s: %v", value, form, err))
	default:
		s.mismatch(at, "is "+typeName(value)+", and must be "+form)
	}
}

func isText(value any) bool { _, is := value.(string); return is }

// typeName returns YAML's term for a value.
func typeName(value any) string {
	switch value.(type) {
	case map[string]any:
		return "a map"
	case []any:
		return "a list"
	case json.Number:
		return "a number"
	case bool:
		return "true or false"
	}
	return "text"
}

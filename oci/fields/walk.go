package fields

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Select returns a deep copy of a struct of the specification with only its fields for the guest. It calls report for
// each set field that is ignored or refused. path is the path of in, such as "process", or empty. A field counts as
// unset if it is empty or zero, also behind a pointer.
func Select[T any](in *T, path string, report func(path string, e Entry)) *T {
	if in == nil {
		return nil
	}
	s := selection{report}
	out := new(T)
	s.fields(reflect.ValueOf(out).Elem(), reflect.ValueOf(in).Elem(), path)
	return out
}

// Copy returns a deep copy.
func Copy[T any](in T) T {
	var out T
	deepCopy(reflect.ValueOf(&out).Elem(), reflect.ValueOf(&in).Elem())
	return out
}

type selection struct{ report func(string, Entry) }

// fields visits the fields of the struct from. It copies those for the guest to a valid to.
func (s selection) fields(to, from reflect.Value, path string) {
	for i := range from.NumField() {
		field, value := from.Type().Field(i), from.Field(i)
		at := join(path, nameOf(field))
		switch e := EntryOf(from.Type(), nameOf(field)); {
		case e.Treatment == Guest && to.IsValid():
			s.value(to.Field(i), value, at)
		case !isSet(value):
		case e.Treatment == Guest, e.Treatment == Host:
			s.value(reflect.Value{}, value, at)
		default:
			s.report(at, e)
		}
	}
}

// value visits the structs of the specification in from, and copies all else to a valid to.
func (s selection) value(to, from reflect.Value, path string) {
	switch {
	case from.Kind() == reflect.Pointer && from.IsNil(), from.Kind() == reflect.Slice && from.IsNil():
	case from.Kind() == reflect.Pointer && IsSpec(from.Type().Elem()):
		if to.IsValid() {
			to.Set(reflect.New(from.Type().Elem()))
			to = to.Elem()
		}
		s.fields(to, from.Elem(), path)
	case IsSpec(from.Type()):
		s.fields(to, from, path)
	case from.Kind() == reflect.Slice && IsSpec(from.Type().Elem()):
		if to.IsValid() {
			to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
		}
		for i := range from.Len() {
			target := reflect.Value{}
			if to.IsValid() {
				target = to.Index(i)
			}
			s.fields(target, from.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case to.IsValid():
		deepCopy(to, from)
	}
}

// deepCopy sets to to a copy of from.
func deepCopy(to, from reflect.Value) {
	switch from.Kind() {
	case reflect.Pointer:
		if !from.IsNil() {
			to.Set(reflect.New(from.Type().Elem()))
			deepCopy(to.Elem(), from.Elem())
		}
	case reflect.Slice:
		if !from.IsNil() {
			to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
			for i := range from.Len() {
				deepCopy(to.Index(i), from.Index(i))
			}
		}
	case reflect.Map:
		if !from.IsNil() {
			to.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
			for key, value := range from.Seq2() {
				one := reflect.New(value.Type()).Elem()
				deepCopy(one, value)
				to.SetMapIndex(key, one)
			}
		}
	case reflect.Struct:
		for i := range from.NumField() {
			deepCopy(to.Field(i), from.Field(i))
		}
	default:
		to.Set(from)
	}
}

// isSet reports whether a value is neither zero nor empty.
func isSet(value reflect.Value) bool {
	switch value.Kind() {
	case reflect.Slice, reflect.Map:
		return value.Len() > 0
	case reflect.Pointer:
		return !value.IsNil() && isSet(value.Elem())
	case reflect.Struct:
		for i := range value.NumField() {
			if isSet(value.Field(i)) {
				return true
			}
		}
		return false
	}
	return !value.IsZero()
}

// IsSpec reports whether t is a struct of the specification.
func IsSpec(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.PkgPath() == reflect.TypeFor[specs.Spec]().PkgPath()
}

// EntryOf returns the entry for a field of the type t, by its name in JSON. An unknown field is refused.
func EntryOf(t reflect.Type, name string) Entry {
	if e, ok := table[t.Name()+"."+name]; ok {
		return e
	}
	return refused("this version does not know it")
}

// nameOf returns a field's name in JSON, or of its type if it is embedded.
func nameOf(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	if name == "" {
		return field.Name
	}
	return name
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

package fields

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Refuse reports each set field of an API object (a pointer) that is not honoured, with its path and the table's
// reason.
func Refuse(object any, report func(field, message string)) {
	walk(reflect.ValueOf(object).Elem(), "", report)
}

// walk checks the fields of an API struct. Fields that the table does not know, of a later API, are refused too.
func walk(value reflect.Value, prefix string, report func(field, message string)) {
	for i := range value.NumField() {
		field := value.Type().Field(i)
		name, embedded := JSONName(field)
		if embedded {
			walk(value.Field(i), prefix, report)
			continue
		}
		entry := entryOf(value.Type(), name)
		if isSet(value.Field(i)) && (entry.Status == Honoured || isUnion(value.Type()) || !isEmpty(value.Field(i))) {
			check(entry, value.Field(i), prefix+name, report)
		}
	}
}

// check applies a field's entry to its set value.
func check(entry Entry, value reflect.Value, path string, report func(field, message string)) {
	switch {
	case entry.Status == NoEffect:
		return
	case len(entry.Values) > 0 && value.Kind() == reflect.Map:
		for key, one := range value.Seq2() {
			if !slices.Contains(entry.Values, key.String()) && !slices.Contains(entry.Values, key.String()+"="+text(one)) {
				report(path+"."+key.String(), refusal(entry))
			}
		}
		return
	case len(entry.Values) > 0:
		if !slices.Contains(entry.Values, text(value)) {
			report(path, fmt.Sprintf("%s %s", text(value), refusal(entry)))
		}
		return
	case entry.Status != Honoured:
		report(path, refusal(entry))
		return
	}
	for value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	switch {
	case value.Kind() == reflect.Slice && isAPI(value.Type().Elem()):
		for i := range value.Len() {
			walk(value.Index(i), fmt.Sprintf("%s[%d].", path, i), report)
		}
	case isAPI(value.Type()):
		walk(value, path+".", report)
	}
}

// refusal returns the message for a refused field, with the accepted values.
func refusal(entry Entry) string {
	message := "is not honoured"
	if len(entry.Values) > 0 && entry.Values[0] != "" {
		message += ", only " + strings.Join(entry.Values, " and ")
	}
	if entry.Note != "" {
		message += ": " + entry.Note
	}
	return message
}

// text returns a scalar in YAML's form.
func text(value reflect.Value) string {
	for value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	return fmt.Sprint(value.Interface())
}

// isSet reports whether a field is set.
func isSet(value reflect.Value) bool {
	switch value.Kind() {
	case reflect.Slice, reflect.Map:
		return value.Len() > 0
	}
	return !value.IsZero()
}

// isEmpty reports whether a set field is empty, such as "affinity: {}".
func isEmpty(value reflect.Value) bool {
	switch value.Kind() {
	case reflect.Pointer:
		return value.IsNil() || value.Elem().Kind() == reflect.Struct && isEmpty(value.Elem())
	case reflect.Struct:
		for i := range value.NumField() {
			if !isEmpty(value.Field(i)) {
				return false
			}
		}
		return true
	}
	return !isSet(value)
}

// isUnion reports whether t is a union, where a field's presence selects a kind: an empty volume of one kind is not a
// volume of another.
func isUnion(t reflect.Type) bool {
	return strings.HasSuffix(t.Name(), "Source") || strings.HasSuffix(t.Name(), "Projection") || strings.HasSuffix(t.Name(), "Handler")
}

// isAPI reports whether t is a struct that the tables cover.
func isAPI(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	switch t.PkgPath() {
	case "k8s.io/api/core/v1", "k8s.io/api/apps/v1", "k8s.io/api/batch/v1":
		return true
	}
	return t.Name() == "ObjectMeta" || t.Name() == "TypeMeta"
}

// entryOf returns the tables' entry for a field. Without an entry it is refused.
func entryOf(t reflect.Type, name string) Entry {
	if entry, known := table[key(t, name)]; known {
		return entry
	}
	return otherTable[key(t, name)]
}

// key returns a field's key in the tables.
func key(t reflect.Type, name string) string { return t.Name() + "." + name }

// JSONName returns a field's name in YAML, and whether it is an embedded struct, which has no name.
func JSONName(field reflect.StructField) (name string, embedded bool) {
	name, _, _ = strings.Cut(field.Tag.Get("json"), ",")
	return name, name == ""
}

package fields

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Strings calls visit with each string in a struct of the specification, in the order of the fields.
func Strings(in any, visit func(path, text string)) { visitStrings(reflect.ValueOf(in), "", visit) }

func visitStrings(value reflect.Value, path string, visit func(path, text string)) {
	switch value.Kind() {
	case reflect.String:
		visit(path, value.String())
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			visitStrings(value.Elem(), path, visit)
		}
	case reflect.Slice:
		for i := range value.Len() {
			visitStrings(value.Index(i), fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case reflect.Map:
		keys := value.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			visit(path, key.String())
			visitStrings(value.MapIndex(key), join(path, key.String()), visit)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			visitStrings(value.Field(i), join(path, nameOf(value.Type().Field(i))), visit)
		}
	}
}

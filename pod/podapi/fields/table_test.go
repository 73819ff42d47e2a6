package fields

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// everyField calls visit for each field of the API that the table must have. set makes a pod with only that field set.
func everyField(t *testing.T, visit func(key, path string, entry Entry, set func() *corev1.Pod)) {
	t.Helper()
	seen := map[reflect.Type]bool{}
	var walk func(typ reflect.Type, prefix string, reach func(*corev1.Pod) reflect.Value)
	walk = func(typ reflect.Type, prefix string, reach func(*corev1.Pod) reflect.Value) {
		seen[typ] = true
		for i := range typ.NumField() {
			field := typ.Field(i)
			name, embedded := JSONName(field)
			here := func(pod *corev1.Pod) reflect.Value { return reach(pod).Field(i) }
			if embedded {
				walk(field.Type, prefix, here)
				continue
			}
			entry, path := entryOf(typ, name), prefix+name
			visit(key(typ, name), path, entry, func() *corev1.Pod {
				pod := &corev1.Pod{}
				fill(here(pod), entry.Status != Honoured)
				return pod
			})
			inner := element(field.Type)
			if entry.Status != Honoured || len(entry.Values) > 0 || !isAPI(inner) || seen[inner] {
				continue
			}
			if field.Type.Kind() == reflect.Slice {
				path += "[0]"
			}
			walk(inner, path+".", func(pod *corev1.Pod) reflect.Value {
				value := here(pod)
				switch value.Kind() {
				case reflect.Slice:
					value.Set(reflect.MakeSlice(value.Type(), 1, 1))
					return value.Index(0)
				case reflect.Pointer:
					value.Set(reflect.New(inner))
					return value.Elem()
				}
				return value
			})
		}
	}
	walk(reflect.TypeFor[corev1.Pod](), "", func(pod *corev1.Pod) reflect.Value { return reflect.ValueOf(pod).Elem() })
}

// fill sets a field to a value other than zero that is not among the accepted values. With deep, it is also not empty.
func fill(value reflect.Value, deep bool) {
	switch value.Kind() {
	case reflect.String:
		value.SetString("some-value")
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		value.SetInt(7)
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		if deep || value.Type().Elem().Kind() != reflect.Struct {
			fill(value.Elem(), deep)
		}
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
	case reflect.Map:
		value.Set(reflect.MakeMap(value.Type()))
		value.SetMapIndex(reflect.ValueOf("some-key").Convert(value.Type().Key()), reflect.Zero(value.Type().Elem()))
	case reflect.Struct:
		if value.Type() == reflect.TypeFor[corev1.ResourceRequirements]() {
			return // its fields have their own tests
		}
		if value.Type() == reflect.TypeFor[resource.Quantity]() {
			value.Set(reflect.ValueOf(resource.MustParse("1")))
			return
		}
		for i := range value.NumField() {
			if value.Field(i).CanSet() {
				fill(value.Field(i), deep)
				return
			}
		}
	}
}

func TestEveryFieldIsInTheTable(t *testing.T) {
	known := map[string]bool{}
	everyField(t, func(key, path string, entry Entry, _ func() *corev1.Pod) {
		known[key] = true
		if entry.Status == "" {
			t.Errorf("%s (%s) is not in the table", key, path)
		}
		if (entry.Status == NoEffect || entry.Status == Never) && entry.Note == "" {
			t.Errorf("%s is %q without a reason", key, entry.Status)
		}
	})
	for key := range table {
		// Fields below a field with accepted values are reached through it.
		if !known[key] {
			t.Errorf("the table has %s, which no pod has", key)
		}
	}
}

func TestEveryRefusedFieldIsRefused(t *testing.T) {
	refused, accepted := 0, 0
	everyField(t, func(_, path string, entry Entry, set func() *corev1.Pod) {
		var named bool
		Refuse(set(), func(field, _ string) { named = named || field == path || strings.HasPrefix(field, path+".") })
		want := entry.Status == Never || len(entry.Values) > 0
		// A bool is set to true, which may be the accepted value.
		if want && len(entry.Values) == 1 && entry.Values[0] == "true" {
			want = false
		}
		if named != want {
			t.Errorf("%s set: refused %v, want %v (%s)", path, named, want, entry.Status)
		}
		if want {
			refused++
		} else {
			accepted++
		}
	})
	if refused < 50 || accepted < 100 {
		t.Errorf("walked %d refused and %d accepted fields: the walk does not reach them", refused, accepted)
	}
}

func TestDocumentIsUpToDate(t *testing.T) {
	have, err := os.ReadFile("../../../docs/pod-api.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, Markdown()) {
		t.Error("docs/pod-api.md is out of date: run go generate ./pod/podapi/fields")
	}
}

// TestEveryFieldOfTheOthersIsInTheTable checks the objects other than pods.
func TestEveryFieldOfTheOthersIsInTheTable(t *testing.T) {
	known, seen := map[string]bool{}, map[reflect.Type]bool{reflect.TypeFor[corev1.PodSpec](): true}
	var walk func(typ reflect.Type)
	walk = func(typ reflect.Type) {
		seen[typ] = true
		for i := range typ.NumField() {
			field := typ.Field(i)
			name, embedded := JSONName(field)
			inner := element(field.Type)
			if embedded {
				walk(inner)
				continue
			}
			entry := entryOf(typ, name)
			known[key(typ, name)] = true
			switch {
			case entry.Status == "":
				t.Errorf("%s is not in the table", key(typ, name))
			case (entry.Status == NoEffect || entry.Status == Never) && entry.Note == "":
				t.Errorf("%s is %q without a reason", key(typ, name), entry.Status)
			}
			if entry.Status == Honoured && len(entry.Values) == 0 && isAPI(inner) && !seen[inner] {
				walk(inner)
			}
		}
	}
	for _, typ := range otherTypes {
		walk(typ)
	}
	for key := range otherTable {
		if !known[key] {
			t.Errorf("the table has %s, which no object has", key)
		}
	}
}

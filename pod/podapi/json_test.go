package podapi

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const jsonPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"NAME"},"spec":{"containers":[{"name":"c","image":"i"}]}}`

// TestJSON: a document that begins with { is a stream of JSON objects, as for kubectl. Text after the end of a document
// is read or refused.
func TestJSON(t *testing.T) {
	t.Parallel()
	of := func(name string) string { return strings.Replace(jsonPod, "NAME", name, 1) }
	yaml := func(name string) string { return strings.Replace(head, "name: web", "name: "+name, 1) }
	indented := strings.NewReplacer(`{"name"`, "{\n\t\"name\"", `,"spec"`, ",\r\n \"spec\"").Replace(of("a"))
	list := `{"apiVersion":"v1","kind":"List","items":[` + of("a") + "," + of("b") + "]}"
	for _, test := range []struct{ name, text, pods, fault string }{
		{name: "one", text: of("a"), pods: "a"},
		{name: "with tabs", text: indented, pods: "a"},
		{name: "lines of objects", text: of("a") + "\n" + of("b") + "\n", pods: "a b"},
		{name: "objects without a gap", text: of("a") + of("b"), pods: "a b"},
		{name: "a byte order mark", text: "\ufeff" + of("a"), pods: "a"},
		{name: "a byte order mark before YAML", text: "\ufeff" + yaml("a"), pods: "a"},
		{name: "a byte order mark in the middle", text: of("a") + "\n---\n\ufeff" + of("b"), pods: "a b"},
		{name: "escapes", text: strings.NewReplacer(`"i"`, `"localhost\/i"`, `"c"`, `"\u0063"`).Replace(of("a")), pods: "a"},
		{name: "a pair of escapes", text: strings.Replace(of("a"), `"i"`, `"i","args":["\ud83d\ude00"]`, 1), pods: "a"},
		{name: "separators", text: of("a") + "\n---\n" + of("b") + "\n---\n" + yaml("c"), pods: "a b c"},
		{name: "YAML first", text: yaml("a") + "---\n" + of("b") + "\n" + of("c"), pods: "a b c"},
		{name: "YAML's braces", text: "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}\n", pods: "a"},
		{name: "YAML's quotes", text: strings.ReplaceAll(of("a"), `"`, "'"), pods: "a"},
		{name: "a list", text: list, pods: "a b"},
		{name: "a list of its kind", text: strings.ReplaceAll(strings.Replace(list, `"List"`, `"PodList"`, 1),
			`{"apiVersion":"v1","kind":"Pod",`, "{"), pods: "a b"},
		{name: "lists and objects", text: list + of("c") + "\n---\n" + yaml("d"), pods: "a b c d"},

		{name: "an array", text: "[" + of("a") + "]", fault: "f:1: not an object of the Kubernetes API: it is a list"},
		{name: "an array after an object", text: of("a") + "\n[" + of("b") + "]",
			fault: "f:2: not an object of the Kubernetes API: it is a list"},
		{name: "a word after an object", text: of("a") + "\n\nkind: Pod\n", fault: "f:3: not JSON: invalid character 'k'"},
		{name: "a comma after an object", text: of("a") + ",\n" + of("b"), fault: "f:1: not JSON: invalid character ','"},
		{name: "a brace too many", text: of("a") + "\n}\n", fault: "f:2: not JSON: invalid character '}'"},
		{name: "null", text: of("a") + "\nnull\n", fault: "f:2: kind: is missing"},
		{name: "half an object", text: of("a") + "\n" + of("b")[:50], fault: "f:2: not JSON: the text ends within a value"},
		{name: "a comma at the end", text: strings.Replace(indented, `"i"`, `"i",`, 1), fault: "f:4: not JSON: invalid character '}'"},
		{name: "a key twice", text: strings.Replace(indented, `"i"`, `"i","image":"j"`, 1), fault: `f:4: key "image" is already set in this map`},
		{name: "an escaped key twice", text: strings.Replace(of("a"), `"i"`, `"i","\u0069mage":"j"`, 1), fault: `key "image" is already set`},
		{name: "an unknown field", text: of("a") + "\n" + strings.Replace(of("b"), `"image"`, `"oops":1,"image"`, 1),
			fault: "f:2: spec.containers[0].oops: unknown field"},
		{name: "a field of another case", text: strings.Replace(of("a"), `"spec"`, `"Spec"`, 1), fault: "Spec: unknown field"},
		{name: "the same pod", text: of("a") + "\n" + of("a"), fault: "f:2: metadata.name: Pod default/a appears twice, first at f:1"},

		{name: "YAML's second map", text: "{apiVersion: v1, kind: Pod}\n{kind: Pod}\n",
			fault: "f:2: not YAML: there is text after the end of the document"},
		{name: "YAML and then a brace", text: yaml("a") + "{}\n", fault: "not YAML: "},
		{name: "YAML and then a word", text: yaml("a") + "word\n", fault: "not YAML: "},
		{name: "a scalar and then a map", text: "'a'\nkind: Pod\n", fault: "not YAML: "},
		{name: "a list and then a map", text: "[a]\nkind: Pod\n", fault: "not YAML: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pods, err := Decode("f", []byte(test.text))
			if test.fault != "" {
				if err == nil || !strings.Contains(err.Error(), test.fault) || !errors.Is(err, errSyntax) && !errors.Is(err, errInvalid) {
					t.Errorf("%d pods, %v, want %q", len(pods), err, test.fault)
				}
				return
			}
			var names []string
			for _, p := range pods {
				names = append(names, p.Name)
			}
			if diff := cmp.Diff(strings.Fields(test.pods), names); err != nil || diff != "" {
				t.Fatalf("%v %s", err, diff)
			}
			if c := pods[0].Spec.Containers[0]; test.name == "escapes" && (c.Image != "localhost/i" || c.Name != "c") ||
				test.name == "a pair of escapes" && c.Args[0] != "😀" {
				t.Errorf("read as %q, %q, %q", c.Name, c.Image, c.Args)
			}
		})
	}
}

package podapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/bulkhead-project/bulkhead/pod/podapi/fields"
	"github.com/bulkhead-project/bulkhead/pod/podapi/jsonnode"
)

// decoder collects the objects and problems of files.
type decoder struct {
	options  Options
	unjudged bool // report no fields that are not honoured; the caller judges them
	found    Documents
	problems FieldErrors
	objects  int               // objects found or skipped
	expanded int               // expanded bytes of all documents so far
	places   map[string]string // places of objects, by kind and name
	skipped  map[string]*skipped

	file   string
	before int          // lines of the file before the current document
	root   *yamlv3.Node // of the current document, for line numbers
}

// add reports a fault. A line of 0 means the line of the field; other lines are relative to the document. At most
// maxFaults faults are collected.
func (d *decoder) add(line int, field string, class error, message string) {
	if len(d.problems) > maxFaults {
		return
	}
	if line == 0 && d.root != nil {
		line = lineOf(d.root, field)
	}
	if line > 0 {
		line += d.before
	}
	if len(d.problems) == maxFaults {
		field, message = "", "there are more faults"
	}
	message = strings.Join(strings.Fields(cut(message)), " ")
	d.problems = append(d.problems, &FieldError{File: d.file, Line: line, Field: cut(field), Message: message, class: class})
}

// sort orders the faults from index from on by line, so that the faults of a file have a stable order.
func (d *decoder) sort(from int) {
	last := min(len(d.problems), maxFaults) // the note about further faults stays at the end
	if from < last {
		slices.SortStableFunc(d.problems[from:last], func(a, b *FieldError) int {
			return cmp.Or(cmp.Compare(a.Line, b.Line), strings.Compare(a.Field, b.Field), strings.Compare(a.Message, b.Message))
		})
	}
}

// read reads all objects in a file.
func (d *decoder) read(f File) {
	d.file, d.before, d.root = f.Name, 0, nil
	if len(f.Data) > maxText {
		d.add(0, "", errSyntax, fmt.Sprintf("it has %d bytes, but the limit is %d", len(f.Data), maxText))
		return
	}
	parts := split(bytes.TrimPrefix(f.Data, byteOrderMark))
	if len(parts) > maxDocuments {
		d.add(0, "", errSyntax, fmt.Sprintf("it has more than %d documents", maxDocuments))
		return
	}
	objects, problems := d.objects, len(d.problems)
	defer func() { d.sort(problems) }()
	for _, one := range parts {
		d.before, d.root = one.before, nil
		d.document(one.text)
		if len(d.problems) > maxFaults || d.expanded > maxExpanded {
			return
		}
	}
	d.before, d.root = 0, nil
	if d.objects == objects && len(d.problems) == problems {
		d.add(0, "", errSyntax, "no pod in it")
	}
}

// document reads a part of a file: consecutive JSON objects, or a YAML document. A document that starts like JSON but
// is not JSON may still be YAML: {apiVersion: v1}.
func (d *decoder) document(data []byte) {
	const space = " \t\r\n"
	if bytes.HasPrefix(bytes.TrimLeft(data, space), byteOrderMark) {
		data = bytes.Replace(data, byteOrderMark, nil, 1)
	}
	if !bytes.HasPrefix(bytes.TrimLeft(data, space), []byte("{")) || !d.json(data) {
		d.yaml(data)
	}
}

// json reads a stream of JSON values as kubectl does, and reports whether data is JSON.
func (d *decoder) json(data []byte) bool {
	in := jsonnode.New(data, maxExpanded/nodeCost, maxDepth)
	for n := 0; ; n++ {
		node, text, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return true
		case err != nil && n == 0 && !likeJSON.Match(data):
			return false
		case err != nil:
			d.root = nil
			d.add(in.Line(), "", errSyntax, "not JSON: "+err.Error())
			return true
		case n == maxDocuments:
			d.add(in.Line(), "", errSyntax, fmt.Sprintf("there are more than %d objects", maxDocuments))
			return true
		}
		if d.root = node; !d.weighed(node) {
			return true
		}
		d.object(text, "", "", "")
		if len(d.problems) > maxFaults {
			return true
		}
	}
}

func (d *decoder) yaml(data []byte) {
	var root, more yamlv3.Node
	in := yamlv3.NewDecoder(bytes.NewReader(data))
	if err := in.Decode(&root); err != nil {
		if !errors.Is(err, io.EOF) { // only comments
			d.yamlError(err)
		}
		return
	}
	if err := in.Decode(&more); !errors.Is(err, io.EOF) {
		d.afterEnd(err, &more)
		return
	}
	if len(root.Content) == 0 || root.Content[0].Tag == "!!null" {
		return
	}
	if !d.weighed(root.Content[0]) {
		return
	}
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		d.yamlError(err)
		return
	}
	d.root = root.Content[0]
	d.object(text, "", "", "")
}

// object decodes the object at prefix in the document. version and kind apply if the object has none.
func (d *decoder) object(text []byte, prefix, version, kind string) {
	object := struct {
		Version string            `json:"apiVersion"`
		Kind    string            `json:"kind"`
		Items   []json.RawMessage `json:"items"`
	}{Version: version, Kind: kind}
	if err := json.Unmarshal(text, &object); err != nil {
		message := "not an object of the Kubernetes API"
		if prefix == "" && bytes.HasPrefix(text, []byte("[")) {
			message += ": it is a list; put its objects one after the other, or into the items of a List"
		}
		d.add(0, strings.TrimSuffix(prefix, "."), errSyntax, message)
		return
	}
	if decode := kinds[object.Version+" "+object.Kind]; decode != nil {
		d.objects++
		decode(d, text, prefix)
		return
	}
	of, list := strings.CutSuffix(object.Kind, "List")
	switch {
	case list && prefix == "" && object.Version == "v1" && of == "":
		d.items(object.Items, "", "")
	case list && prefix == "" && kinds[object.Version+" "+of] != nil:
		d.items(object.Items, object.Version, of)
	case object.Kind == "":
		d.add(0, prefix+"kind", errSyntax, "is missing; a pod begins with \"apiVersion: v1\" and \"kind: Pod\"")
	default:
		d.unread(object.Version, object.Kind, prefix)
	}
}

func (d *decoder) items(items []json.RawMessage, version, kind string) {
	for i, item := range items {
		d.object(item, "items["+strconv.Itoa(i)+"].", version, kind)
	}
}

// strictly decodes text into object, a pointer, and reports success. It reports unknown fields and reads the others.
func (d *decoder) strictly(text []byte, object any, prefix string) bool {
	s := shape{report: func(line int, field, message string) { d.add(line, field, errSyntax, message) }}
	s.fit(text, nodeAt(d.root, strings.TrimSuffix(prefix, ".")), reflect.TypeOf(object).Elem(), prefix)
	if !s.wrong {
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, object); err != nil { // fit did not find the fault
			d.add(0, strings.TrimSuffix(prefix, "."), errSyntax, err.Error())
			return false
		}
	}
	return !s.wrong
}

// reporter returns a function that reports faults of a class in the object at prefix.
func (d *decoder) reporter(class error, prefix string) func(field, message string) {
	return func(field, message string) { d.add(0, prefix+field, class, message) }
}

func (d *decoder) pod(text []byte, prefix string) {
	pod := &corev1.Pod{}
	before := len(d.problems)
	if !d.strictly(text, pod, prefix) {
		return
	}
	if !d.unjudged {
		fields.Refuse(pod, d.reporter(errNotHonoured, prefix))
	}
	setDefaults(pod)
	validate(pod, d.reporter(errInvalid, prefix))
	if len(d.problems) == before && d.once("Pod", &pod.ObjectMeta, prefix) {
		d.keep(pod)
	}
}

// keep adds a pod.
func (d *decoder) keep(pod *corev1.Pod) {
	if len(d.found.Pods) == maxPods {
		d.add(0, "", errInvalid, fmt.Sprintf("there are more than %d pods", maxPods))
		return
	}
	d.found.Pods = append(d.found.Pods, pod)
}

// once reports whether an object's kind and name are unique.
func (d *decoder) once(kind string, meta *metav1.ObjectMeta, prefix string) bool {
	key, here := kind+" "+meta.Namespace+"/"+meta.Name, d.file
	if line := lineOf(d.root, prefix+"metadata.name"); line > 0 {
		here = fmt.Sprintf("%s:%d", d.file, d.before+line)
	}
	if there, twice := d.places[key]; twice {
		d.add(0, prefix+"metadata.name", errInvalid, key+" appears twice, first at "+there)
		return false
	}
	d.places[key] = here
	return true
}

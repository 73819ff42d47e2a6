package podapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// decoder collects the objects and problems of one file.
type decoder struct {
	file     string
	found    Documents
	problems FieldErrors
	root     *yamlv3.Node // of the current document, for line numbers
}

func (d *decoder) add(line int, field string, class error, message string) {
	if line == 0 && d.root != nil {
		line = lineOf(d.root, field)
	}
	message = strings.Join(strings.Fields(message), " ")
	d.problems = append(d.problems, &FieldError{File: d.file, Line: line, Field: field, Message: message, class: class})
}

// split cuts data at the lines that separate documents. Each document is led by
// as many line ends as lines lie before it, so that a parser's line numbers are
// the file's.
func split(data []byte) [][]byte {
	var documents [][]byte
	var current []byte
	lines := 0
	for line := range bytes.Lines(data) {
		lines++
		if rest, found := bytes.CutPrefix(line, []byte("---")); found && (len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\r\n")) {
			documents = append(documents, current)
			current = bytes.Repeat([]byte("\n"), lines-1)
			line = append([]byte("   "), rest...)
		}
		current = append(current, line...)
	}
	return append(documents, current)
}

var (
	atLine = regexp.MustCompile(`line (\d+): *`)
	// oneShort are the errors whose line the parser counts from 0.
	oneShort = regexp.MustCompile(`did not find expected (key|node content|',' or|'-' indicator|<)`)
)

func (d *decoder) document(data []byte) {
	d.root = nil
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(data, &root); err != nil {
		d.yamlError(err)
		return
	}
	if root.Kind == 0 || len(root.Content) == 0 || root.Content[0].Tag == "!!null" {
		return // nothing but comments
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		d.yamlError(err)
		return
	}
	d.root = root.Content[0]
	d.object(text, "", "", "")
}

// yamlError reports each line of a YAML parser's error on its own.
func (d *decoder) yamlError(err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:")
	for part := range strings.Lines(text) {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		line := 0
		if match := atLine.FindStringSubmatchIndex(part); match != nil {
			line, _ = strconv.Atoi(part[match[2]:match[3]])
			part = part[:match[0]] + part[match[1]:]
			if oneShort.MatchString(part) {
				line++
			}
		}
		part = strings.TrimPrefix(strings.TrimPrefix(part, "error converting YAML to JSON: "), "yaml: ")
		d.add(line, "", ErrSyntax, "not YAML: "+part)
	}
}

// object decodes one object, which stands at prefix in the document. Where it
// does not say what it is, it is what kind and version say, if anything.
func (d *decoder) object(text []byte, prefix, version, kind string) {
	object := struct {
		Version string            `json:"apiVersion"`
		Kind    string            `json:"kind"`
		Items   []json.RawMessage `json:"items"`
	}{Version: version, Kind: kind}
	if err := json.Unmarshal(text, &object); err != nil {
		d.add(0, strings.TrimSuffix(prefix, "."), ErrSyntax, "not an object of the Kubernetes API")
		return
	}
	if decode := kinds[object.Version+" "+object.Kind]; decode != nil {
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
		d.add(0, prefix+"kind", ErrSyntax, "there is none; a pod begins with \"apiVersion: v1\" and \"kind: Pod\"")
	default:
		if object.Version != "" {
			object.Version = " (" + object.Version + ")"
		}
		d.add(0, prefix+"kind", ErrNotHonoured, object.Kind+object.Version+": "+hint(object.Kind))
	}
}

func (d *decoder) items(items []json.RawMessage, version, kind string) {
	for i, item := range items {
		d.object(item, "items["+strconv.Itoa(i)+"].", version, kind)
	}
}

// kinds are the objects that are read, by their apiVersion and kind.
var kinds = map[string]func(d *decoder, text []byte, prefix string){
	"v1 Pod":              (*decoder).pod,
	"v1 ConfigMap":        (*decoder).configMap,
	"v1 Secret":           (*decoder).secret,
	"apps/v1 Deployment":  (*decoder).deployment,
	"apps/v1 ReplicaSet":  (*decoder).replicaSet,
	"apps/v1 StatefulSet": (*decoder).statefulSet,
	"apps/v1 DaemonSet":   (*decoder).daemonSet,
	"batch/v1 Job":        (*decoder).job,
}

// hint says what to do with an object that is not read.
func hint(kind string) string {
	switch kind {
	case "CronJob":
		return "nothing is started by the clock; make a Job of its spec.jobTemplate.spec"
	case "ReplicationController":
		return "not run; make a Pod of its spec.template"
	case "Service":
		return "there are no services; publish a port with hostPort or -p"
	}
	for known := range kinds {
		if version, of, _ := strings.Cut(known, " "); of == kind {
			return "apiVersion must be " + version
		}
	}
	return "only Pods, workloads made of them, ConfigMaps and Secrets are read"
}

// strictly decodes text into object, a pointer, and tells whether it could be. Unknown and
// repeated fields are reported.
func (d *decoder) strictly(text []byte, object any, prefix string) bool {
	strict, err := kjson.UnmarshalStrict(text, object)
	if err != nil {
		d.typeError(err, prefix)
		return false
	}
	for _, err := range strict {
		field, message := err.Error(), ""
		if kind, quoted, found := strings.Cut(field, " field "); found {
			if name, err := strconv.Unquote(quoted); err == nil {
				field, message = prefix+name, kind+" field"
			}
		}
		d.add(0, field, ErrSyntax, message)
	}
	return true
}

// reporter reports faults of a class in the object at prefix.
func (d *decoder) reporter(class error, prefix string) func(field, message string) {
	return func(field, message string) { d.add(0, prefix+field, class, message) }
}

func (d *decoder) pod(text []byte, prefix string) {
	pod := &corev1.Pod{}
	before := len(d.problems)
	if !d.strictly(text, pod, prefix) {
		return
	}
	refuse(pod, d.reporter(ErrNotHonoured, prefix))
	setDefaults(pod)
	validate(pod, d.reporter(ErrInvalid, prefix))
	if len(d.problems) == before {
		d.found.Pods = append(d.found.Pods, pod)
	}
}

// typeError reports a JSON type mismatch in the words of YAML.
func (d *decoder) typeError(err error, prefix string) {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) || wrong.Field == "" {
		d.add(0, strings.TrimSuffix(prefix, "."), ErrSyntax, strings.TrimPrefix(err.Error(), "json: "))
		return
	}
	kind, _, _ := strings.Cut(wrong.Value, " ")
	line := 0
	if prefix == "" {
		line = findKind(d.root, wrong.Field, kind)
	}
	d.add(line, prefix+wrong.Field, ErrSyntax, "cannot be a "+wrong.Value+"; it is a "+wrong.Type.String())
}

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

// decoder collects pods and problems of one file.
type decoder struct {
	file     string
	pods     []*corev1.Pod
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
	d.object(text, "")
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

// object decodes one object, which stands at prefix in the document.
func (d *decoder) object(text []byte, prefix string) {
	var kind struct {
		Version string            `json:"apiVersion"`
		Kind    string            `json:"kind"`
		Items   []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		d.add(0, strings.TrimSuffix(prefix, "."), ErrSyntax, "not an object of the Kubernetes API")
		return
	}
	switch {
	case kind.Version == "v1" && kind.Kind == "Pod":
		d.pod(text, prefix)
	case kind.Version == "v1" && (kind.Kind == "List" || kind.Kind == "PodList") && prefix == "":
		for i, item := range kind.Items {
			d.object(item, prefix+"items["+strconv.Itoa(i)+"].")
		}
	case kind.Kind == "":
		d.add(0, prefix+"kind", ErrSyntax, "there is none; a pod begins with \"apiVersion: v1\" and \"kind: Pod\"")
	default:
		if kind.Version != "" {
			kind.Version = " (" + kind.Version + ")"
		}
		d.add(0, prefix+"kind", ErrNotHonoured, kind.Kind+kind.Version+": "+hint(kind.Kind))
	}
}

// hint says what to do with an object that is no pod.
func hint(kind string) string {
	switch kind {
	case "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController":
		return "only pods are run here; make a Pod of its spec.template"
	case "CronJob":
		return "only pods are run here; make a Pod of its spec.jobTemplate.spec.template"
	case "Service":
		return "only pods are run here; publish a port with hostPort or -p"
	case "ConfigMap", "Secret":
		return "not honoured yet; give the values as env"
	case "Pod":
		return "apiVersion must be v1"
	}
	return "only v1 Pods, and v1 Lists of them, are run here"
}

func (d *decoder) pod(text []byte, prefix string) {
	pod := &corev1.Pod{}
	before := len(d.problems)
	strict, err := kjson.UnmarshalStrict(text, pod)
	if err != nil {
		d.typeError(err, prefix)
		return
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
	report := func(class error) func(field, message string) {
		return func(field, message string) { d.add(0, prefix+field, class, message) }
	}
	refuse(pod, report(ErrNotHonoured))
	setDefaults(pod)
	validate(pod, report(ErrInvalid))
	if len(d.problems) == before {
		d.pods = append(d.pods, pod)
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

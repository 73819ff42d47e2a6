// Package podapi reads pods and the objects they refer to from a user's YAML documents. It decodes them strictly, with
// the API server's defaults and validation.
//
// Package fields defines the handling of each field of the API. A field that is not honoured is refused by name.
package podapi

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The classes of this package's errors, matched with errors.Is.
var (
	// errSyntax: the text is not YAML, or does not have the API's form.
	errSyntax = errors.New("not a pod")
	// errInvalid: the API does not allow a field's value.
	errInvalid = errors.New("invalid pod")
	// errNotHonoured: Bulkhead refuses a valid field.
	errNotHonoured = errors.New("not honoured")
)

// FieldError is one fault of a document.
type FieldError struct {
	File    string // as given to Decode
	Line    int    // 1-based; 0 if unknown
	Field   string // a path such as spec.containers[0].image; may be empty
	Message string
	class   error
}

func (p *FieldError) Error() string {
	where := p.File
	if p.Line > 0 {
		where = fmt.Sprintf("%s:%d", where, p.Line)
	}
	if p.Field == "" {
		return where + ": " + p.Message
	}
	return where + ": " + p.Field + ": " + p.Message
}

// Unwrap returns the class.
func (p *FieldError) Unwrap() error { return p.class }

// FieldErrors are all faults of the documents. errors.As finds it and each of its entries. The message is one line with
// the first few faults and a count.
type FieldErrors []*FieldError

// shownFaults is how many faults the message contains.
const shownFaults = 3

func (p FieldErrors) Error() string {
	var texts []string
	for _, one := range p[:min(len(p), shownFaults)] {
		texts = append(texts, one.Error())
	}
	text := strings.Join(texts, "; ")
	if len(p) > shownFaults {
		text += fmt.Sprintf(" (and %d more)", len(p)-shownFaults)
	}
	return text
}

// Detail returns all faults, one a line, or "" if the message already contains them.
func (p FieldErrors) Detail() string {
	if len(p) <= shownFaults {
		return ""
	}
	var b strings.Builder
	for _, one := range p {
		fmt.Fprintln(&b, one)
	}
	return b.String()
}

// Unwrap returns the single faults.
func (p FieldErrors) Unwrap() []error {
	var out []error
	for _, problem := range p {
		out = append(out, problem)
	}
	return out
}

// Documents are the objects of YAML documents, in order.
type Documents struct {
	// Pods are defaulted and validated, and have a UID. They include the pods of workloads.
	Pods []*corev1.Pod
	// ConfigMaps and Secrets are validated and have a namespace. A Secret's stringData is merged into its data.
	ConfigMaps []*corev1.ConfigMap
	Secrets    []*corev1.Secret
	// Claims are defaulted and validated, and have a namespace. They include the claims of StatefulSets' pods.
	Claims []*corev1.PersistentVolumeClaim
	// Warnings has one line for each skipped kind of object.
	Warnings []string
}

// File is one file to read.
type File struct {
	Name string // for messages
	Data []byte
}

// Options control the reading of files.
type Options struct {
	// IgnoreUnsupported skips objects that only a cluster can have, such as a Service, instead of refusing them.
	// Unknown kinds are refused anyway.
	IgnoreUnsupported bool
}

// ReadAll reads the YAML (or JSON) documents in files: v1 Pods, ConfigMaps, Secrets and PersistentVolumeClaims,
// workloads, and Lists of all these. The error is a FieldErrors with every fault, and then there are no objects. Files
// without any object and duplicate objects are errors. The size is limited, also after the expansion of aliases and
// replicas, so any file is read or refused in little time and memory.
func ReadAll(files []File, options Options) (*Documents, error) {
	d := &decoder{options: options, places: map[string]string{}, skipped: map[string]*skipped{}}
	for _, f := range files {
		d.read(f)
	}
	if len(d.problems) > 0 {
		return nil, d.problems
	}
	d.found.Warnings = d.warnings()
	return &d.found, nil
}

// Read is ReadAll for one file.
func Read(name string, data []byte) (*Documents, error) {
	return ReadAll([]File{{Name: name, Data: data}}, Options{})
}

// Decode is Read for callers that only want pods. It returns an error if there is no pod.
func Decode(name string, data []byte) ([]*corev1.Pod, error) {
	found, err := Read(name, data)
	if err != nil {
		return nil, err
	}
	if len(found.Pods) == 0 {
		return nil, FieldErrors{{File: name, Message: "no pod in it", class: errSyntax}}
	}
	return found.Pods, nil
}

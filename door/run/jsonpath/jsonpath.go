// Package jsonpath fills in templates in kubectl's language.
package jsonpath

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/containerd/errdefs"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// Fill fills in a template with a JSON value. Missing fields are empty. The error matches errdefs.ErrInvalidArgument.
func Fill(template string, value json.RawMessage) (string, error) {
	var data any
	if err := kjson.Unmarshal(value, &data); err != nil {
		return "", errclass.New(errdefs.ErrInvalidArgument, "invalid value: %w", err)
	}
	// "{.a}", ".a" and "a" mean the same to kubectl.
	if !strings.Contains(template, "{") {
		template = "{." + strings.TrimPrefix(template, ".") + "}"
	}
	j := jsonpath.New("output").AllowMissingKeys(true)
	if err := j.Parse(template); err != nil {
		return "", errclass.New(errdefs.ErrInvalidArgument, "jsonpath %q: %w", template, err)
	}
	var out bytes.Buffer
	if err := j.Execute(&out, data); err != nil {
		return "", errclass.New(errdefs.ErrInvalidArgument, "jsonpath %q: %w", template, err)
	}
	return out.String(), nil
}

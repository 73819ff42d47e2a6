package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// evaluate fills a JSONPath template in, as kubectl does: the command line
// carries no library for it.
func (s *server) evaluate(r *http.Request) (any, error) {
	req, err := decode[api.JSONPathRequest](r)
	if err != nil {
		return nil, err
	}
	text, err := fillIn(req.Template, req.Value)
	return api.JSONPathResult{Text: text}, err
}

func fillIn(template string, value json.RawMessage) (string, error) {
	var data any
	if err := kjson.Unmarshal(value, &data); err != nil {
		return "", fmt.Errorf("%w value: %w", api.ErrInvalid, err)
	}
	// "{.a}", ".a" and "a" mean the same to kubectl.
	if !strings.Contains(template, "{") {
		template = "{." + strings.TrimPrefix(template, ".") + "}"
	}
	j := jsonpath.New("output").AllowMissingKeys(true)
	if err := j.Parse(template); err != nil {
		return "", errclass.With(api.ErrInvalid, fmt.Errorf("jsonpath %q: %w", template, err))
	}
	var out bytes.Buffer
	if err := j.Execute(&out, data); err != nil {
		return "", errclass.With(api.ErrInvalid, fmt.Errorf("jsonpath %q: %w", template, err))
	}
	return out.String(), nil
}

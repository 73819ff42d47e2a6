package podapi

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadTakesConfigMapsAndSecrets(t *testing.T) {
	found, err := Read("f.yaml", []byte(`
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: prod}
immutable: true
data: {a: "1", b.conf: "x=y\n"}
binaryData: {bin: AAH/}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
data: {a: b25l, b: b25l}
stringData: {b: two, c: three}
`))
	if err != nil {
		t.Fatal(err)
	}
	m, s := found.ConfigMaps[0], found.Secrets[0]
	if m.Name != "settings" || m.Namespace != "prod" || !*m.Immutable || m.Data["b.conf"] != "x=y\n" || string(m.BinaryData["bin"]) != "\x00\x01\xff" {
		t.Errorf("%+v", m)
	}
	have := map[string]string{}
	for key, value := range s.Data {
		have[key] = string(value)
	}
	if diff := cmp.Diff(map[string]string{"a": "one", "b": "two", "c": "three"}, have); diff != "" {
		t.Error(diff)
	}
	if s.Namespace != "default" || s.Type != "Opaque" || s.StringData != nil {
		t.Errorf("namespace %q, type %q, stringData %v", s.Namespace, s.Type, s.StringData)
	}
	if _, err := Decode("f.yaml", []byte("{apiVersion: v1, kind: Secret, metadata: {name: k}}")); !errors.Is(err, ErrSyntax) {
		t.Errorf("documents without a pod: %v", err)
	}
}

func TestReadRefusesObjects(t *testing.T) {
	const hidden = "c3VwZXItc2VjcmV0"
	object := func(kind, rest string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: %s\nmetadata: {name: it}\n%s\n", kind, rest)
	}
	for _, tc := range []struct {
		name, text, want string
		class            error
	}{
		{"unknown field", object("ConfigMap", "dat: {}"), "f.yaml:4: dat: unknown field", ErrSyntax},
		{"no name", "apiVersion: v1\nkind: Secret\n", "metadata.name: is required", ErrInvalid},
		{"bad name", strings.Replace(object("ConfigMap", ""), "name: it", "name: It", 1), `metadata.name: "It"`, ErrInvalid},
		{"bad namespace", strings.Replace(object("ConfigMap", ""), "name: it", "name: it, namespace: a.b", 1), "metadata.namespace", ErrInvalid},
		{"bad label", strings.Replace(object("Secret", ""), "name: it", "name: it, labels: {a b: c}", 1), "metadata.labels", ErrInvalid},
		{"finalizers", strings.Replace(object("Secret", ""), "name: it", "name: it, finalizers: [x/y]", 1), "metadata.finalizers: is not honoured", ErrNotHonoured},
		{"key", object("ConfigMap", "data: {a/b: x}"), `f.yaml:4: data: "a/b"`, ErrInvalid},
		{"dots", object("ConfigMap", `data: {"..": x}`), `data: ".."`, ErrInvalid},
		{"binary key", object("ConfigMap", "binaryData: {a b: AA==}"), `binaryData: "a b"`, ErrInvalid},
		{"both", object("ConfigMap", "data: {a: x}\nbinaryData: {a: AA==}"), `data: "a" is in binaryData too`, ErrInvalid},
		{"not base64", object("Secret", "data: {a: "+hidden+"!}"), "data.a: must be text in base64", ErrSyntax},
		{"number", object("Secret", "stringData: {a: 5432}"), "stringData.a: is a number, and must be text: put it in quotes", ErrSyntax},
		{"too large", object("ConfigMap", "data: {a: "+strings.Repeat("x", 1<<20+1)+"}"), "1048577 bytes in all, at most 1048576", ErrInvalid},
		{"too large together", object("Secret", "stringData: {a: "+strings.Repeat("x", 1<<19)+", b: "+strings.Repeat("x", 1<<19+1)+"}"), "at most 1048576", ErrInvalid},
		{"secret key", object("Secret", "stringData: {a b: "+hidden+"}"), `stringData: "a b"`, ErrInvalid},
		{"tls", object("Secret", "type: kubernetes.io/tls\nstringData: {tls.crt: "+hidden+"}"), "tls.key is required", ErrInvalid},
		{"ssh", object("Secret", "type: kubernetes.io/ssh-auth"), "ssh-privatekey is required", ErrInvalid},
		{"basic", object("Secret", "type: kubernetes.io/basic-auth"), "username is required", ErrInvalid},
		{"docker", object("Secret", "type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: "+hidden+"}"), ".dockerconfigjson is not JSON", ErrInvalid},
		{"token", object("Secret", "type: kubernetes.io/service-account-token"), "kubernetes.io/service-account.name is required", ErrInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Read("f.yaml", []byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) || !errors.Is(err, tc.class) {
				t.Fatalf("error %.300v, want %q of %v", err, tc.want, tc.class)
			}
			if strings.Contains(err.Error(), hidden) || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error tells a secret, or more than a line: %v", err)
			}
		})
	}
}

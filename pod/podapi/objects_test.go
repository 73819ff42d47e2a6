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
	if m.Name != "settings" || m.Namespace != "prod" || !*m.Immutable || m.Data["b.conf"] != "x=y\n" ||
		string(m.BinaryData["bin"]) != "\x00\x01\xff" {
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
	if _, err := Decode("f.yaml", []byte("{apiVersion: v1, kind: Secret, metadata: {name: k}}")); !errors.Is(err, errSyntax) {
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
		{name: "unknown field", text: object("ConfigMap", "dat: {}"), want: "f.yaml:4: dat: unknown field", class: errSyntax},
		{name: "no name", text: "apiVersion: v1\nkind: Secret\n", want: "metadata.name: is required", class: errInvalid},
		{name: "bad name", text: strings.Replace(object("ConfigMap", ""), "name: it", "name: It", 1), want: `metadata.name: "It"`,
			class: errInvalid},
		{name: "bad namespace", text: strings.Replace(object("ConfigMap", ""), "name: it", "name: it, namespace: a.b", 1),
			want: "metadata.namespace", class: errInvalid},
		{name: "bad label", text: strings.Replace(object("Secret", ""), "name: it", "name: it, labels: {a b: c}", 1),
			want: "metadata.labels", class: errInvalid},
		{name: "finalizers", text: strings.Replace(object("Secret", ""), "name: it", "name: it, finalizers: [x/y]", 1),
			want: "metadata.finalizers: is not honoured", class: errNotHonoured},
		{name: "key", text: object("ConfigMap", "data: {a/b: x}"), want: `f.yaml:4: data: "a/b"`, class: errInvalid},
		{name: "dots", text: object("ConfigMap", `data: {"..": x}`), want: `data: ".."`, class: errInvalid},
		{name: "binary key", text: object("ConfigMap", "binaryData: {a b: AA==}"), want: `binaryData: "a b"`, class: errInvalid},
		{name: "both", text: object("ConfigMap", "data: {a: x}\nbinaryData: {a: AA==}"), want: `data: "a" is in binaryData too`,
			class: errInvalid},
		{name: "not base64", text: object("Secret", "data: {a: "+hidden+"!}"), want: "data.a: must be text in base64", class: errSyntax},
		{name: "number", text: object("Secret", "stringData: {a: 5432}"),
			want: "stringData.a: is a number, and must be text: put it in quotes", class: errSyntax},
		{name: "too large", text: object("ConfigMap", "data: {a: "+strings.Repeat("x", 1<<20+1)+"}"),
			want: "1048577 bytes in all, at most 1048576", class: errInvalid},
		{name: "too large together", text: object("Secret",
			"stringData: {a: "+strings.Repeat("x", 1<<19)+", b: "+strings.Repeat("x", 1<<19+1)+"}"), want: "at most 1048576", class: errInvalid},
		{name: "secret key", text: object("Secret", "stringData: {a b: "+hidden+"}"), want: `stringData: "a b"`, class: errInvalid},
		{name: "tls", text: object("Secret", "type: kubernetes.io/tls\nstringData: {tls.crt: "+hidden+"}"), want: "tls.key is required",
			class: errInvalid},
		{name: "ssh", text: object("Secret", "type: kubernetes.io/ssh-auth"), want: "ssh-privatekey is required", class: errInvalid},
		{name: "basic", text: object("Secret", "type: kubernetes.io/basic-auth"), want: "username is required", class: errInvalid},
		{name: "docker", text: object("Secret", "type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: "+hidden+"}"),
			want: ".dockerconfigjson is not JSON", class: errInvalid},
		{name: "token", text: object("Secret", "type: kubernetes.io/service-account-token"),
			want: "kubernetes.io/service-account.name is required", class: errInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Read("f.yaml", []byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) || !errors.Is(err, tc.class) {
				t.Fatalf("error %.300v, want %q of %v", err, tc.want, tc.class)
			}
			if strings.Contains(err.Error(), hidden) || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error contains a secret, or more than a line: %v", err)
			}
		})
	}
}

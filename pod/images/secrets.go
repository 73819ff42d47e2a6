package images

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/volume"
)

// credential is one entry of a pull secret.
type credential struct {
	place    string // host[:port][/path]
	username string
	password string
}

// errNone means that a secret has no credentials for images.
var errNone = errors.New("it contains no credentials for images")

// pullSecrets returns the credentials of the pod's imagePullSecrets, the longest place first, and the names of missing
// secrets.
func pullSecrets(ctx context.Context, o *config.Options) (out []credential, missing []string, err error) {
	for _, ref := range o.Pod.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue
		}
		secret, err := o.AllObjects().Secret(ctx, ref.Name)
		if errors.Is(err, volume.ErrNotFound) {
			missing = append(missing, ref.Name)
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("image pull secret %s: %w", ref.Name, err)
		}
		list, err := credentials(secret)
		if errors.Is(err, errNone) { // treat it as missing: the image may be public
			missing = append(missing, ref.Name)
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("image pull secret %s: %w", ref.Name, err)
		}
		out = append(out, list...)
	}
	slices.SortStableFunc(out, func(a, b credential) int { return strings.Compare(b.place, a.place) })
	return out, missing, nil
}

// credentials reads a secret of one of the two types for credentials. Errors do not contain its content.
func credentials(secret *corev1.Secret) ([]credential, error) {
	type entry struct {
		Username string `json:"username"`
		Password string `json:"password"`
		Auth     string `json:"auth"`
	}
	var entries map[string]entry
	var data []byte
	var err error
	switch secret.Type {
	case corev1.SecretTypeDockerConfigJson:
		var file struct {
			Auths map[string]entry `json:"auths"`
		}
		data = secret.Data[corev1.DockerConfigJsonKey]
		err = json.Unmarshal(data, &file)
		entries = file.Auths
	case corev1.SecretTypeDockercfg:
		data = secret.Data[corev1.DockerConfigKey]
		err = json.Unmarshal(data, &entries)
	}
	if len(data) == 0 {
		return nil, errNone
	}
	if err != nil {
		return nil, fmt.Errorf("its content is not valid for its type, %s", secret.Type)
	}
	var out []credential
	for place, e := range entries {
		c := credential{place: placeOf(place), username: e.Username, password: e.Password}
		if e.Auth != "" {
			raw, err := base64.StdEncoding.DecodeString(e.Auth)
			name, password, found := strings.Cut(string(raw), ":")
			if err != nil || !found {
				return nil, fmt.Errorf("the auth of %s is not user:password in base64", place)
			}
			c.username, c.password = name, strings.TrimRight(password, "\x00")
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b credential) int { return strings.Compare(a.place, b.place) })
	return out, nil
}

// placeOf returns a registry's place without the scheme and the version of its API.
func placeOf(text string) string {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	at := u.Path
	for _, version := range []string{"/v1", "/v2"} {
		if rest, found := strings.CutPrefix(at, version); found && (rest == "" || rest[0] == '/') {
			at = rest
			break
		}
	}
	return u.Host + strings.TrimSuffix(at, "/")
}

// defaultPlace is the registry of images with names that contain no registry.
const defaultPlace = "index.docker.io"

// authsFor returns the credentials for an image, the most specific first.
func authsFor(list []credential, image string) []*runtimeapi.AuthConfig {
	var out []*runtimeapi.AuthConfig
	host, rest, slash := strings.Cut(image, "/")
	named := slash && (strings.ContainsAny(host, ".:") || host == "localhost")
	if !named || host == "docker.io" {
		host = defaultPlace
		if named {
			image = rest
		}
		image = host + "/" + image
	}
	for _, c := range list {
		if c.place != "" && inRegistry(c.place, image) {
			out = append(out, &runtimeapi.AuthConfig{Username: c.username, Password: c.password})
		}
	}
	return out
}

// inRegistry reports whether an image is in a place. Each label of the place's host may be a pattern.
func inRegistry(place, image string) bool {
	placeHost, placePath, _ := strings.Cut(place, "/")
	host, rest, _ := strings.Cut(image, "/")
	placeHost, placePort, _ := strings.Cut(placeHost, ":")
	host, port, _ := strings.Cut(host, ":")
	labels, own := strings.Split(placeHost, "."), strings.Split(host, ".")
	if placePort != port || len(labels) != len(own) {
		return false
	}
	for i, label := range labels {
		if ok, err := path.Match(label, own[i]); err != nil || !ok {
			return false
		}
	}
	return strings.HasPrefix(rest, placePath)
}

package podapi

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bulkhead-project/bulkhead/pod/podapi/fields"
)

func (d *decoder) configMap(text []byte, prefix string) {
	object := &corev1.ConfigMap{}
	before := len(d.problems)
	if !d.strictly(text, object, prefix) {
		return
	}
	fields.Refuse(object, d.reporter(errNotHonoured, prefix))
	object.APIVersion, object.Kind = "v1", "ConfigMap"
	c := checker{report: d.reporter(errInvalid, prefix)}
	c.objectMeta(&object.ObjectMeta)
	size := 0
	for key, value := range object.Data {
		c.name("data", key, validation.IsConfigMapKey)
		size += len(value)
		if _, twice := object.BinaryData[key]; twice {
			c.fault("data", "%q is in binaryData too", key)
		}
	}
	for key, value := range object.BinaryData {
		c.name("binaryData", key, validation.IsConfigMapKey)
		size += len(value)
	}
	c.size("data", size)
	if len(d.problems) == before && d.once("ConfigMap", &object.ObjectMeta, prefix) {
		d.found.ConfigMaps = append(d.found.ConfigMaps, object)
	}
}

// secret reads a Secret. Messages about its faults contain no values.
func (d *decoder) secret(text []byte, prefix string) {
	object := &corev1.Secret{}
	before := len(d.problems)
	if !d.strictly(text, object, prefix) {
		return
	}
	fields.Refuse(object, d.reporter(errNotHonoured, prefix))
	object.APIVersion, object.Kind = "v1", "Secret"
	setDefault(&object.Type, corev1.SecretTypeOpaque)
	c := checker{report: d.reporter(errInvalid, prefix)}
	c.objectMeta(&object.ObjectMeta)
	if len(object.StringData) > 0 {
		object.Data = maps.Clone(object.Data)
		if object.Data == nil {
			object.Data = map[string][]byte{}
		}
		for key, value := range object.StringData {
			c.name("stringData", key, validation.IsConfigMapKey)
			object.Data[key] = []byte(value)
		}
	}
	size := 0
	for key, value := range object.Data {
		if _, said := object.StringData[key]; !said {
			c.name("data", key, validation.IsConfigMapKey)
		}
		size += len(value)
	}
	object.StringData = nil
	c.size("data", size)
	c.secretType(object)
	if len(d.problems) == before && d.once("Secret", &object.ObjectMeta, prefix) {
		d.found.Secrets = append(d.found.Secrets, object)
	}
}

// secretType checks for the required keys of a type of Secret.
func (c checker) secretType(object *corev1.Secret) {
	need := func(keys ...string) {
		for _, key := range keys {
			if _, there := object.Data[key]; !there {
				c.fault("data", "%s is required in a Secret of type %s", key, object.Type)
			}
		}
	}
	switch object.Type {
	case corev1.SecretTypeDockercfg:
		need(corev1.DockerConfigKey)
		c.json(object.Data, corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		need(corev1.DockerConfigJsonKey)
		c.json(object.Data, corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, user := object.Data[corev1.BasicAuthUsernameKey]
		_, password := object.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			need(corev1.BasicAuthUsernameKey)
		}
	case corev1.SecretTypeSSHAuth:
		need(corev1.SSHAuthPrivateKey)
	case corev1.SecretTypeTLS:
		need(corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	case corev1.SecretTypeServiceAccountToken:
		if object.Annotations[corev1.ServiceAccountNameKey] == "" {
			c.fault("metadata.annotations", "%s is required in a Secret of type %s", corev1.ServiceAccountNameKey, object.Type)
		}
	}
}

func (c checker) json(data map[string][]byte, key string) {
	if value, there := data[key]; there && !json.Valid(value) {
		c.fault("data", "%s is not JSON", key)
	}
}

// objectMeta sets defaults and checks the metadata of a namespaced object.
func (c checker) objectMeta(meta *metav1.ObjectMeta) {
	setDefault(&meta.Namespace, metav1.NamespaceDefault)
	c.name("metadata.name", meta.Name, validation.IsDNS1123Subdomain)
	c.name("metadata.namespace", meta.Namespace, validation.IsDNS1123Label)
	c.labels("metadata.", meta.Labels)
}

func (c checker) labels(at string, labels map[string]string) {
	for key, value := range labels {
		c.name(at+"labels", key, validation.IsQualifiedName)
		for _, message := range validation.IsValidLabelValue(value) {
			c.fault(at+"labels", "%q: %s", value, message)
		}
	}
}

func (c checker) size(field string, size int) {
	if size > corev1.MaxSecretSize {
		c.fault(field, "has %d bytes in all, at most %d are allowed", size, corev1.MaxSecretSize)
	}
}

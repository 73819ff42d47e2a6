// Package auth authenticates and authorises requests to a node's API. It accepts client certificates of the cluster's
// authority, and bearer tokens that the API server reviews. The API server also authorises each request. Answers are
// cached.
package auth

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
)

// Lifetimes and number of the cached answers, as in a kubelet.
const (
	tokenFor    = 2 * time.Minute
	refusedFor  = 10 * time.Second // an invalid token
	allowedFor  = 5 * time.Minute
	deniedFor   = 30 * time.Second
	keptAnswers = 1024
	askTimeout  = 10 * time.Second
	// maxReviews limits concurrent reviews of each kind, because any client that reaches the node can cause the review
	// of a token.
	maxReviews = 16
)

// User is an authenticated user.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// ErrUnknown is matched by the error of a request without a valid certificate or token.
var ErrUnknown = errors.New("not authenticated")

// ErrBusy is matched by the error of a request that comes during too many reviews.
var ErrBusy = errors.New("too many requests are being reviewed")

// Webhook reviews requests by asking an API server. It is safe for concurrent use.
type Webhook struct {
	client  kubernetes.Interface
	clients func() *x509.CertPool // authorities of client certificates; nil for none
	node    string
	tokens  *cache.LRUExpireCache
	refused *cache.LRUExpireCache // invalid tokens, kept apart so that they cannot displace valid ones
	answers *cache.LRUExpireCache
	reviews chan struct{} // one element for each review of a token
	access  chan struct{} // one element for each review of an access
}

// New returns the reviewer of a node's requests. clients returns the current authorities of client certificates, or
// nil.
func New(client kubernetes.Interface, node string, clients func() *x509.CertPool) *Webhook {
	return &Webhook{
		client: client, clients: clients, node: node,
		tokens: cache.NewLRUExpireCache(keptAnswers), refused: cache.NewLRUExpireCache(keptAnswers),
		answers: cache.NewLRUExpireCache(keptAnswers),
		reviews: make(chan struct{}, maxReviews), access: make(chan struct{}, maxReviews),
	}
}

// acquire counts a review until release is called. The error is ErrBusy.
func acquire(under chan struct{}) (release func(), err error) {
	select {
	case under <- struct{}{}:
		return func() { <-under }, nil
	default:
		return nil, ErrBusy
	}
}

// Authenticate authenticates a request. The error matches ErrUnknown or ErrBusy, or the API server could not be
// reached.
func (h *Webhook) Authenticate(r *http.Request) (*User, error) {
	if u := h.certificateUser(r); u != nil {
		return u, nil
	}
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, ErrUnknown
	}
	key := sha256.Sum256([]byte(token))
	if u, found := h.tokens.Get(key); found {
		return u.(*User), nil
	}
	if _, found := h.refused.Get(key); found {
		return nil, ErrUnknown
	}
	release, err := acquire(h.reviews)
	if err != nil {
		return nil, fmt.Errorf("review a token: %w", err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	got, err := h.client.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("review a token: %w", err)
	}
	if !got.Status.Authenticated {
		h.refused.Add(key, true, refusedFor)
		return nil, ErrUnknown
	}
	u := &User{Name: got.Status.User.Username, UID: got.Status.User.UID, Groups: got.Status.User.Groups, Extra: map[string][]string{}}
	for name, values := range got.Status.User.Extra {
		u.Extra[name] = values
	}
	h.tokens.Add(key, u, tokenFor)
	return u, nil
}

// certificateUser returns the user of a valid client certificate, or nil.
func (h *Webhook) certificateUser(r *http.Request) *User {
	roots := h.clients()
	if roots == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	others := x509.NewCertPool()
	for _, c := range r.TLS.PeerCertificates[1:] {
		others.AddCert(c)
	}
	leaf := r.TLS.PeerCertificates[0]
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: others, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil || leaf.Subject.CommonName == "" {
		return nil
	}
	groups := append([]string{}, leaf.Subject.Organization...)
	return &User{Name: leaf.Subject.CommonName, Groups: append(groups, "system:authenticated")}
}

// Authorize reports whether a user may use a verb on a subresource of the node. The error matches ErrBusy, or the API
// server could not be reached.
func (h *Webhook) Authorize(ctx context.Context, u *User, verb, subresource string) (bool, error) {
	key := fmt.Sprintf("%q %q %q %q %q %q", u.Name, u.UID, u.Groups, u.Extra, verb, subresource)
	if allowed, found := h.answers.Get(key); found {
		return allowed.(bool), nil
	}
	release, err := acquire(h.access)
	if err != nil {
		return false, fmt.Errorf("review an access: %w", err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	extra := map[string]authorizationv1.ExtraValue{}
	for name, values := range u.Extra {
		extra[name] = values
	}
	got, err := h.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: u.Name, UID: u.UID, Groups: u.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: h.node,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("review an access: %w", err)
	}
	hold := deniedFor
	if got.Status.Allowed {
		hold = allowedFor
	}
	h.answers.Add(key, got.Status.Allowed, hold)
	return got.Status.Allowed, nil
}

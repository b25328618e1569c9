// An identity provider for the tests: access tokens as JWT for one audience, with groups, by client credentials.
import { createRequire } from "node:module";
const { default: Provider } = await import(createRequire(process.argv[2] + "/").resolve("oidc-provider"));
const jwks = { keys: [JSON.parse(process.argv[4])] };
const groups = { ann: ["staff"], bob: [] };
const clients = Object.keys(groups).map((name) => ({
  client_id: name, client_secret: "secret", grant_types: ["client_credentials"], redirect_uris: [], response_types: [],
}));
const resource = {
  scope: "ask", audience: "spolia", accessTokenTTL: 600, accessTokenFormat: "jwt", jwt: { sign: { alg: "RS256" } },
};
const provider = new Provider(process.argv[3], {
  clients,
  jwks,
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: false },
    resourceIndicators: {
      enabled: true, defaultResource: () => "urn:spolia", useGrantedResource: () => true,
      getResourceServerInfo: (_, asked) => ({ ...resource, audience: asked === "urn:other" ? "other" : "spolia" }),
    },
  },
  extraTokenClaims: (_, token) => ({ sub: token.clientId, groups: groups[token.clientId] }),
});
provider.listen(Number(new URL(process.argv[3]).port), "127.0.0.1", () => console.log("ready"));

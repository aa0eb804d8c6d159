// A real OpenID provider on the loopback address: node server.mjs SETTINGS.json
// Settings: port, client {id, secret, redirect, ended}, accounts (the path of a file, which is read at
// each use), scope, audience. It prints "ready" when it accepts connections.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { generateKeyPairSync } from 'node:crypto'
import path from 'node:path'

const settings = JSON.parse(readFileSync(process.argv[2], 'utf8'))
const require = createRequire(path.join(process.argv[3], 'package.json'))
const { Provider } = await import(require.resolve('oidc-provider'))

const issuer = `http://127.0.0.1:${settings.port}`
const key = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' })
const account = (id) => JSON.parse(readFileSync(settings.accounts, 'utf8'))[id]

const provider = new Provider(issuer, {
  jwks: { keys: [{ ...key, use: 'sig', kid: `key-${Date.now()}`, alg: 'RS256' }] },
  clients: [{
    client_id: settings.client.id,
    client_secret: settings.client.secret,
    token_endpoint_auth_method: 'client_secret_post',
    redirect_uris: [settings.client.redirect],
    grant_types: ['authorization_code'],
    response_types: ['code'],
    backchannel_logout_uri: settings.client.ended,
    backchannel_logout_session_required: true,
  }, {
    client_id: 'audit-system',
    client_secret: settings.client.secret,
    token_endpoint_auth_method: 'client_secret_post',
    redirect_uris: [],
    grant_types: ['client_credentials'],
    response_types: [],
  }],
  claims: { openid: ['sub'], profile: ['name', 'preferred_username', 'groups'] },
  scopes: ['openid', 'profile', 'email', settings.scope],
  features: {
    backchannelLogout: { enabled: true },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: (ctx) => (ctx.oidc.params?.grant_type === 'client_credentials' ? settings.audience : undefined),
      getResourceServerInfo: () => ({
        scope: settings.scope,
        audience: settings.audience,
        accessTokenFormat: 'jwt',
        jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
  pkce: { required: () => true },
  cookies: { keys: ['only for tests'] },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...account(id) }) }),
  // Without the provider's own dispatcher, which refuses the loopback address of the tests.
  fetch: (url, { dispatcher, ...options }) => fetch(url, options),
})
for (const name of ['backchannel.error', 'server_error']) provider.on(name, (...args) => console.error(name, ...args.filter((arg) => arg instanceof Error)))
provider.listen(settings.port, '127.0.0.1', () => console.log('ready'))
